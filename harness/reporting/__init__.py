"""What is made of run directories: tables, figures, pages, and judged claims."""
