"""Records that the views draw, made of named questions to the store: no widgets, no drawing."""
