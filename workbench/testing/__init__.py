"""Testing your own methods: worlds whose outcomes are written down."""
