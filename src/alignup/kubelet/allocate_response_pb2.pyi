from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AllocateResponse(_message.Message):
    __slots__ = ("devices",)
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[DeviceFile]
    def __init__(self, devices: _Optional[_Iterable[_Union[DeviceFile, _Mapping]]] = ...) -> None: ...

class DeviceFile(_message.Message):
    __slots__ = ("container_path", "host_path")
    CONTAINER_PATH_FIELD_NUMBER: _ClassVar[int]
    HOST_PATH_FIELD_NUMBER: _ClassVar[int]
    container_path: str
    host_path: str
    def __init__(self, container_path: _Optional[str] = ..., host_path: _Optional[str] = ...) -> None: ...
