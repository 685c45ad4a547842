"""`python -m workbench` is `workbench`."""

from workbench.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
