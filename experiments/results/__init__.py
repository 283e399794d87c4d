"""What results say: tables, statistics, metrics and conclusions."""
