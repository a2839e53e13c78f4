#!/usr/bin/env python
"""Entry point of every lqops command: `python manage.py help` lists them."""

from lqops.cli import main

if __name__ == "__main__":
    main()
