"""How a cell is rewritten: the syntax trees that call guards."""
