"""Extensions and shared files only: all metadata is in pyproject.toml.

ALIGNUP_ANNOTATE=1 writes Cython's annotated HTML beside each module; ALIGNUP_TRACE=1 builds with
line tracing. Debug information is left out, which is four fifths of the size, unless
ALIGNUP_DEBUG=1, tracing or a -g in CFLAGS asks for it.
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = Path("cython")
annotate = bool(os.environ.get("ALIGNUP_ANNOTATE"))
trace = bool(os.environ.get("ALIGNUP_TRACE"))
debug = trace or bool(os.environ.get("ALIGNUP_DEBUG")) or "-g" in os.environ.get("CFLAGS", "")
strips = not debug and sys.platform == "linux"
workers = os.cpu_count() or 1

extensions = [
    Extension(
        ".".join(source.relative_to(SOURCES).with_suffix("").parts),
        [str(source)],
        extra_compile_args=["-O3", "-Wall", "-Wno-unused-function", *([] if debug else ["-g0"])],
        extra_link_args=["-Wl,-s"] if strips else [],
        define_macros=[("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")] if trace else [],
    )
    for source in sorted(SOURCES.rglob("*.pyx"))
]

# what other programs look for below share/
shared = [("share/alignup", ["docs/explanation.schema.json"])]
shared += [
    (str(file.parent), [str(file)])
    for file in sorted(Path("share").rglob("*"))
    if file.suffix != ".in" and file.is_file()
]

# Cython translates in several processes, which since Python 3.14 import this file
if __name__ == "__main__":
    setup(
        data_files=shared,
        ext_modules=cythonize(
            extensions,
            include_path=[str(SOURCES)],
            build_dir="build/cython",
            annotate=annotate,
            nthreads=workers,
            compiler_directives={
                "language_level": 3,
                "embedsignature": True,
                "boundscheck": False,
                "wraparound": False,
                "cdivision": True,
                "initializedcheck": False,
                "linetrace": trace,
            },
        ),
        options={"build_ext": {"parallel": workers}},
    )
