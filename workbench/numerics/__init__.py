"""Pure functions over arrays that two methods or more share; numpy only."""
