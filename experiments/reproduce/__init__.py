"""The paper's figures, tables and theorems, each with its claims, its drawing and a verdict."""
