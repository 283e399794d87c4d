"""The parts of private counts: tables, domains, bounded contributions, names, results, report."""
