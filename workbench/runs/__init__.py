"""An experiment being made: as data, run, in the background, resumed, swept."""
