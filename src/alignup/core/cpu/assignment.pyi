# What Cython adds to a module.
__test__: dict[str, object]
__pyx_capi__: dict[str, object]
