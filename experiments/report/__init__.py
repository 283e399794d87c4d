"""How results are shown: figures, terminal and HTML."""
