"""The command line: one file a command, with `add_parser(commands)` and the function it calls."""
