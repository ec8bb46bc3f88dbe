"""hwloc's XML, in both formats."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.machine.hwloc_xml import machine_from_hwloc_xml
from alignup.machine.machine import Core, HugePages, Machine, NumaNode, PciDevice

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'

MATRIX = (
    '<distances2 type="NUMANode" nbobjs="3" kind="5" indexing="os"><indexes length="4">0 '
    "4</indexes>"
    '<indexes length="2"> 2</indexes><u64values length="9">10 20 30 40 10 60 70 80 10'
    "</u64values></distances2>"
)

EXPECTED = Machine(
    (
        NumaNode(
            0,
            1 << 30,
            (Core((0, 2), 0, 0),),
            (HugePages("2Mi", 2 << 20, 4), HugePages("1Gi", 1 << 30, 0)),
            (10, 30, 20),
        ),
        NumaNode(2, 2 << 30, (Core((1, 3), 36, 1),), (), (70, 10, 80)),
        NumaNode(4, 4096, (), (), (40, 60, 10)),
    ),
    offline_cpus=(6,),
    pci_devices=(
        PciDevice("0000:10:00.0", "0302", "10de", "2330", 0),
        PciDevice("0000:20:00.0", "0000", "0000", "0000", None),
    ),
)

BOMB = (
    '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b '
    '"&a;&a;&a;">]><topology><object>&b;</object></topology>'
)


def element(kind, cpus, inside="", **attributes):
    """Return an object with a set of CPUs (None: it has none)."""
    described = "".join(f' {name}="{value}"' for name, value in attributes.items())
    cpuset = ""
    if cpus is not None:
        cpuset = f' cpuset="0x{cpus:08x}"'

    return f'<object type="{kind}"{cpuset}{described}>{inside}</object>'


def cores(*sets):
    """Return cores of CPUs."""
    return "".join(
        element(
            "Core",
            cpus,
            "".join(element("PU", 1 << i, os_index=i) for i in range(8) if cpus >> i & 1),
        )
        for cpus in sets
    )


def pages(**counts):
    """Return the sizes of a node's pages (`b4096="1"`)."""
    return "".join(
        f'<page_type size="{size[1:]}" count="{count}"/>' for size, count in counts.items()
    )


def node(numa_id, cpus, memory=0, inside=""):
    return element("NUMANode", cpus, inside, os_index=numa_id, local_memory=memory)


def package(number, cpus, inside):
    return element("Package", cpus, element("L3Cache", cpus, inside, depth=3), os_index=number)


FIRST = package(
    0,
    0x05,
    node(0, 0x05, 1 << 30, pages(b4096=9, b2097152=4, b1073741824=0))
    + node(4, 0x05, 4096)
    + cores(0x05)
    + element(
        "Bridge",
        None,
        element("PCIDev", None, pci_busid="0000:10:00.0", pci_type="0302 [10DE:2330] [0:0] a1"),
    ),
)
SECOND = package(36, 0x0A, node(2, 0x0A, 2 << 30) + cores(0x0A))
NEW = (
    f'{HEAD}<topology version="2.0">'
    + element(
        "Machine",
        0x0F,
        FIRST + SECOND + element("PCIDev", None, pci_busid="0000:20:00.0", pci_type="0200"),
        complete_cpuset="0x0000004f",
    )
    + MATRIX
    + "</topology>"
)


@pytest.mark.parametrize(
    ("near", "owned"),
    [
        # memory near all CPUs, such as HBM, whose number comes first
        ({0: 0x0F, 1: 0x03, 2: 0x0C}, {0: 0, 1: 0x03, 2: 0x0C}),
        ({0: 0x03, 1: 0x0C, 2: 0x0F}, {0: 0x03, 1: 0x0C, 2: 0}),
        # of two that are near the same ones, the first
        ({0: 0x0F, 1: 0x0F}, {0: 0x0F, 1: 0}),
        # what is left of a larger node does not make it the owner
        ({0: 0x0F, 1: 0x03}, {0: 0, 1: 0x03}),
        ({0: 0x07, 1: 0x0C}, {0: 0, 1: 0x0C}),
    ],
)
def test_cpus_belong_to_the_smallest_node_that_is_near_them(near, owned):
    """Hwloc says which CPUs a node is near.

    Memory without CPUs of its own is near those of others.
    """
    nodes = "".join(node(numa_id, cpus, 4096) for numa_id, cpus in near.items())
    text = (
        f"{HEAD}<topology "
        f'version="2.0">{element("Machine", 0x0F, nodes + cores(1, 2, 4, 8))}</topology>'
    )
    machine = machine_from_hwloc_xml(text.encode())
    assert dict(zip(machine.numa_node_ids, machine.node_cpus, strict=True)) == owned
    ownerless = 0x0F & ~sum(owned.values())
    assert sum(core.bits for core in machine.unassigned_cores) == ownerless


def test_the_format_of_today():
    """Nodes hang beside cores; one without CPUs is near those of another.

    Distances name their nodes.
    """
    assert machine_from_hwloc_xml(NEW.encode()) == EXPECTED


def test_the_old_format():
    """Nodes hold sockets, caches have a depth, and distances are in the order of objects."""

    def old_node(numa_id, cpus, number):
        cache = element("Cache", cpus, cores(cpus), depth=3)
        return node(numa_id, cpus, 1 << 20, element("Socket", cpus, cache, os_index=number))

    latencies = "".join(f'<latency value="{value}"/>' for value in (1.0, 2.1, 3.2, 1.0))
    matrix = f'<distances nbobjs="2" relative_depth="1" latency_base="10.0">{latencies}</distances>'
    text = (
        "<topology>"
        + element("Machine", 0x0F, old_node(8, 0x03, 1) + old_node(0, 0x0C, 0) + matrix)
        + "</topology>"
    )
    machine = machine_from_hwloc_xml(text.encode())

    assert machine == Machine(
        (
            NumaNode(0, 1 << 20, (Core((2, 3), 0, 1),), (), (10, 32)),
            NumaNode(8, 1 << 20, (Core((0, 1), 1, 0),), (), (21, 10)),
        )
    )


def test_cpus_and_sockets_that_lack_objects():
    """CPUs in no core are cores; packages without a number get one.

    A machine without nodes is one.
    """
    text = "<topology>" + element(
        "Machine",
        0x1F,
        element("Package", 0x03, cores(0x03))
        + element("Package", 0x04, element("PU", 0x04), os_index=1)
        + element("Package", 0x08, element("PU", 0x08), os_index=1)
        + element("PU", 0x10),
        local_memory=4096,
    )
    machine = machine_from_hwloc_xml(f"{text}</topology>".encode())

    assert machine.numa_nodes == (
        NumaNode(0, 4096, (Core((0, 1), 0), Core((2,), 1), Core((3,), 2), Core((4,), 0)), (), ()),
    )


def test_cpus_of_no_node_and_sets_of_many_words():
    """Sets have words of 32 bits, the last the lowest; empty words are zeros."""
    text = (
        '<topology><object type="Machine" cpuset="0xf0000000,,0x00000003">'
        '<object type="NUMANode" os_index="1" cpuset="0x00000001"/>'
        '<object type="PU" cpuset="0x00000001"/><object type="PU" cpuset="0x80000000,,0x0"/>'
        "</object></topology>"
    )
    machine = machine_from_hwloc_xml(text.encode())

    assert machine.cpus == 1
    assert machine.unassigned_cores == (Core((95,), 0),)


@pytest.mark.parametrize(
    "matrix",
    [
        MATRIX.replace('nbobjs="3"', 'nbobjs="2"'),
        MATRIX.replace("0 4", "0 5"),
        MATRIX.replace("10 20", "20"),
        MATRIX.replace("NUMANode", "PU"),
        '<distances nbobjs="3"><latency value="1"/></distances>',
        "",
    ],
)
def test_distances_of_other_objects_are_not_known(matrix):
    assert machine_from_hwloc_xml(NEW.replace(MATRIX, matrix).encode()).distance_matrix is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_are_refused(encoding):
    """They can grow beyond any bound, in any encoding."""
    with pytest.raises(InputError, match=r"entities of a document's own are not read at file\.xml"):
        machine_from_hwloc_xml(BOMB.encode(encoding), "file.xml")


def test_a_document_that_is_too_deep_is_refused():
    with pytest.raises(InputError, match="more than 200 levels"):
        machine_from_hwloc_xml(
            b"<topology>" + b"<object>" * 300 + b"</object>" * 300 + b"</topology>", "file.xml"
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<topology", "XML is not well formed"),
        ("<html><object/></html>", "a topology with objects in it, got 'html'"),
        ("<topology/>", "a topology with objects in it"),
        ('<topology><object type="Machine"/></topology>', "no objects of type PU at file.xml"),
        (
            NEW.replace('local_memory="4096"', 'local_memory="-4"'),
            "local_memory of an object of type NUMANode",
        ),
        (NEW.replace('depth="3"', 'depth="3" cpuset="1"'), "well formed"),
    ],
)
def test_bad_documents_are_clear_errors(text, message):
    with pytest.raises(InputError, match=message) as caught:
        machine_from_hwloc_xml(text.encode(), "file.xml")
    assert "\n" not in str(caught.value)


def topology(pu='cpuset="0x1"', node='local_memory="1024"', extra="", head=""):
    """Return a document of one CPU and one NUMA node, with attributes of any content."""
    return (
        f'{head}<topology version="2.0"><object type="Machine" cpuset="0x1">'
        f'<object type="NUMANode" os_index="0" cpuset="0x1" {node}><page_type size="4096" '
        'count="1"/></object>'
        f'<object type="PU" os_index="0" {pu}/></object>{extra}</topology>'
    ).encode()


@pytest.mark.parametrize(
    "document",
    [
        topology(pu=f'cpuset="0x1{"," * 200_000}"'),
        topology(pu=f'cpuset="{",".join(["0xffffffff"] * 8000)}"'),
        topology(node=f'local_memory="{"9" * 5000}"'),
        topology(extra='<distances latency_base="abc" nbobjs="1"><latency value="1"/></distances>'),
        topology(extra='<distances latency_base="nan" nbobjs="1"><latency value="1"/></distances>'),
        topology(extra='<distances latency_base="1" nbobjs="1"><latency value="inf"/></distances>'),
        topology(pu=f'cpuset="{",".join(["0xffffffff"] * 2048)}"'),
    ],
)
def test_numbers_beyond_measure_are_refused(document):
    """In one line, at once."""
    with pytest.raises(InputError, match=r"expected|65536 CPUs are more than the 8192 supported"):
        machine_from_hwloc_xml(document)


@pytest.mark.parametrize("values", ["9" * 5000, "1 2 " + "9" * 5000])
def test_numbers_that_do_not_matter_are_passed_over(values):
    """As are distances that are none."""
    extra = (
        '<distances2 type="NUMANode" '
        f'nbobjs="1"><indexes>0</indexes><u64values>{values}</u64values></distances2>'
    )
    assert machine_from_hwloc_xml(topology(extra=extra)).distance_matrix is None
    many = topology().replace(b'os_index="0"', b'os_index="' + b"9" * 5000 + b'"')
    assert machine_from_hwloc_xml(many).numa_node_ids == (0,)


@pytest.mark.parametrize(
    "encoding",
    [
        "foo",
        "shift_jis",
        "utf-7",
        "utf-32",
        "rot13",
        "idna",
        "hex",
        "punycode",
        "undefined",
        "UTF-8",
    ],
)
def test_the_encoding_is_utf8_whatever_the_document_says(encoding):
    """Python's decoders fail in many ways."""
    head = f'<?xml version="1.0" encoding="{encoding}"?>'
    assert machine_from_hwloc_xml(topology(head=head)).cpu_count == 1


def test_the_only_numa_node_of_a_machine_is_not_that_of_its_devices():
    """As the kernel has it."""
    inside = (
        node(0, 0x1, 4096)
        + cores(0x1)
        + element("PCIDev", None, pci_busid="0000:10:00.0", pci_type="0302")
    )
    xml = f'<topology version="2.0">{element("Machine", 0x1, inside)}</topology>'
    (device,) = machine_from_hwloc_xml(xml.encode()).pci_devices
    assert device.numa_node is None


def test_bridges_and_links_are_read():
    """As `lstopo --of xml` writes them: the buses in hex, the speed in GB/s."""
    inner = element(
        "PCIDev",
        None,
        pci_busid="0000:1b:00.0",
        pci_type="0302 [10de:2330]",
        pci_link_speed="63.015385",
    )

    bridge = element(
        "Bridge",
        None,
        pci_busid="0000:15:01.0",
        pci_type="0604 [8086:352a]",
        bridge_pci="0000:[1a-1f]",
    )

    inside = element("PU", 0x1, os_index="0") + bridge + inner
    xml = f'<topology version="2.0">{element("Machine", 0x1, inside)}</topology>'
    devices = machine_from_hwloc_xml(xml.encode()).pci_devices
    assert [(device.address, device.buses, device.link) for device in devices] == [
        ("0000:15:01.0", (0x1A, 0x1F), None),
        ("0000:1b:00.0", None, 63.02),
    ]
