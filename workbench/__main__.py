"""`python -m workbench` is `workbench`."""

from workbench.cli.main import main

raise SystemExit(main())
