"""The dashboard: records out of questions, the parts and pages that draw them, the shell that serves them, notebook cells."""
