"""Charts: each is a function from a document to a Picture; one view draws, hovers and exports them all."""
