"""Reference pages that are read off the code: the store's tables and questions, the command line, the glossary."""

from __future__ import annotations

import argparse
from collections.abc import Iterator


def store() -> str:
    """Every table with its columns, from the comments of schema.sql, then the views and macros, and every question."""
    from workbench.store.questions import load
    from workbench.store.schema import SCHEMA_VERSION, comments, tables

    lines = [
        "# The store",
        "",
        f'Schema version {SCHEMA_VERSION}. `Store.open(folder).sql("select ...")` reads these tables, `.ask(name)` asks the questions',
        "below. How files lie on the disk, and how many machines share a store: [store/README.md](store.md).",
        "",
    ]
    for name, schema in tables().items():
        text_of = comments()[name]
        lines += [f"## {name}", "", text_of[""], "", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{f.name}` | {_plain(f.type)} | {_cell(text_of.get(f.name, ''))} |" for f in schema]
        lines.append("")
    lines += ["## Questions", "", "| question | what it answers | parameters |", "|---|---|---|"]
    for q in load().values():
        takes = ", ".join(f"`{_cell(str(p))}`" for p in q.parameters.values())
        lines.append(f"| `{q.name}` | {_cell(q.text)} | {takes} |")
    return "\n".join(lines)


def _plain(kind: object) -> str:
    return _cell(str(kind).replace("<element: ", " of ").replace("<", " ").replace(">", ""))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """(name, parser, help) of every command, those of groups as "store info"."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            help_of = {a.dest: a.help or "" for a in action._choices_actions}
            for name, sub in action.choices.items():
                yield name, sub, help_of.get(name, "")
                yield from ((f"{name} {inner}", p, h) for inner, p, h in commands(sub))


def cli(parser: argparse.ArgumentParser) -> str:
    """Every command and option, from the parser itself."""
    lines = ["# Command line", "", "`workbench --traceback COMMAND` shows where an error came from.", ""]
    for name, command, text in commands(parser):
        lines += [f"## workbench {name}", "", text or (command.description or ""), ""]
        options = [a for a in command._actions if not isinstance(a, argparse._SubParsersAction | argparse._HelpAction)]
        if not options:
            continue
        lines += ["| option | default | |", "|---|---|---|"]
        for a in options:
            flag = ", ".join(a.option_strings) or (str(a.metavar or a.dest).upper())
            default = "" if a.default in (None, False, argparse.SUPPRESS, []) else f"`{a.default}`"
            text = (a.help or "").replace("%(default)s", str(a.default)).replace("%%", "%")
            choices = f" One of {', '.join(map(str, a.choices))}." if a.choices else ""
            lines.append(f"| `{flag}` | {default} | {_cell(text)}{choices} |")
        lines.append("")
    return "\n".join(lines)


def glossary() -> str:
    """The words of the dashboard's glossary, which is the only one."""
    from workbench.views.glossary import GLOSSARY

    lines = ["# Glossary", ""]
    for part, terms in GLOSSARY.items():
        lines += [f"## {part}", "", "| word | meaning |", "|---|---|"]
        lines += [f"| **{_cell(t.word)}** | {_cell(t.meaning)} |" for t in terms]
        lines.append("")
    return "\n".join(lines)
