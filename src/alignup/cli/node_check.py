"""`alignup node check`: checks the state files of a kubelet, and says what it will do about what is wrong."""

from __future__ import annotations

import click

from alignup.cli import options
from alignup.cli.inputs import KubeletSource
from alignup.cli.terminal import print_json
from alignup.errors import one_line
from alignup.records import json_fields


@options.subcommand("check", "0 nothing is wrong; 1 there are findings")
def command(*, source: KubeletSource = options.all_of(KubeletSource), as_json: bool = options.json("a finding")) -> int:
    """Check the state files of a kubelet against each other, the machine, the configuration and the pods.

    Each finding says what it is, what the kubelet does about it at its next start, and how to mend it. Nothing is
    written.
    """
    from alignup.kubelet.check import check_node
    from alignup.kubelet.layout import open_node

    files = open_node(source.root, source.kubelet_dir, source.node_name)
    found = check_node(files, source.how())
    if as_json:
        print_json(*map(json_fields, found))
        return 1 if found else 0
    if not found:
        click.echo("nothing is wrong with the kubelet's files")
    for number, one in enumerate(found):
        click.echo(nl=number > 0)
        click.echo(one_line(f"{one.file}: {one.text} ({one.kind})"))
        click.echo(one_line(f"  the next start: {one.effect}"))
        click.echo(one_line(f"  repair: {one.repair}"))
    return 1 if found else 0
