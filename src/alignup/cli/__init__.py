"""The command line: `alignup.cli.program` knows the subcommands, and each has a module of its name.

Exit statuses and warnings are told there, too.
"""

from __future__ import annotations

import sys

from alignup.version import VERSION

__all__ = ["complete_for_kubectl", "main"]


def main() -> None:
    """Print the version, or run the program as `run_program` does."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        # without the program, which takes several times as long to import
        try:
            sys.stdout.write(f"alignup {VERSION}\n")
            sys.stdout.flush()
        except (OSError, AttributeError):  # closed or full: the program says so
            pass
        else:
            return

    try:
        from alignup.cli.program import run_program
    except KeyboardInterrupt:
        sys.exit(130)

    run_program()


def complete_for_kubectl() -> None:
    """Print what can come in the place of the last word, as kubectl reads it from its plugins."""
    from click.shell_completion import ShellComplete

    from alignup.cli.program import program

    *arguments, incomplete = sys.argv[1:] or [""]
    shell = ShellComplete(program, {}, "alignup", "_ALIGNUP_COMPLETE")
    completions = shell.get_completions(arguments, incomplete)
    lines = [completion.value for completion in completions if completion.type == "plain"]

    # cobra's directives: default, no files
    wants_files = len(lines) < len(completions)
    directive = ":0" if wants_files else ":4"
    sys.stdout.write("\n".join([*lines, directive, ""]))
