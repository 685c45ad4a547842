"""The frame around the pages: server, navigation, the run that is shown, and messages in the place of a page."""
