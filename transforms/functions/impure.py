"""Lists of impure modules, functions and attributes: files, environment, clock, random numbers, identity, state.

A module of the standard library is refused unless it is listed as pure; a name of a package is refused if it is listed.
"""

from __future__ import annotations

#: Modules of the standard library whose functions depend only on their arguments, except for FORBIDDEN.
PURE = (
    "__future__", "abc", "array", "ast", "base64", "binascii", "bisect", "builtins", "bz2", "calendar", "cmath", "codecs",
    "collections", "colorsys", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "enum",
    "fnmatch", "fractions", "functools", "gzip", "hashlib", "heapq", "hmac", "html", "html.parser", "io", "ipaddress",
    "itertools", "json", "keyword", "lzma", "math", "numbers", "operator", "pprint", "quopri", "re", "select", "shlex",
    "sre_compile", "sre_constants", "sre_parse", "statistics", "string", "stringprep", "struct", "textwrap", "types",
    "typing", "unicodedata", "urllib.parse", "warnings", "xml.sax.saxutils", "zlib",
    "blake2", "md5", "sha1", "sha2", "sha256", "sha3", "sha512", "_blake2", "_md5", "_sha1", "_sha2", "_sha256", "_sha3",
    "_sha512", "_sre", "_collections_abc", "_pydatetime", "_pydecimal", "_strptime",
)  # fmt: skip
#: Names of other modules that depend only on their arguments.
PURE_PATHS = (
    "os.path.basename", "os.path.dirname", "os.path.join", "os.path.split", "os.path.splitext", "os.sep",
    "os.path.normpath", "os.path.commonprefix", "sys.maxsize", "sys.float_info", "sys.maxunicode", "pathlib.PurePath",
    "pathlib.PurePosixPath", "pathlib.PureWindowsPath", "uuid.UUID", "uuid.uuid3", "uuid.uuid5", "uuid.NAMESPACE_URL",
    "uuid.NAMESPACE_DNS", "uuid.NAMESPACE_OID", "uuid.NAMESPACE_X500",
)  # fmt: skip

_FILES_OF_PANDAS = tuple(
    f"pandas.read_{kind}"
    for kind in ("clipboard", "csv", "excel", "feather", "fwf", "hdf", "html", "iceberg", "json", "orc", "parquet",
                 "pickle", "sas", "spss", "sql", "sql_query", "sql_table", "stata", "table", "xml")
)  # fmt: skip
_FILES_OF_NUMPY = tuple(
    f"numpy.{name}" for name in ("fromfile", "genfromtxt", "load", "loadtxt", "memmap", "save", "savetxt", "savez",
                                 "savez_compressed", "fromregex", "DataSource", "lib.npyio", "lib.format")
)  # fmt: skip
#: C++ code reads these; Python's audit events do not show it.
_FILES_OF_ARROW = tuple(
    f"pyarrow.{name}"
    for name in ("OSFile", "MemoryMappedFile", "PythonFile", "memory_map", "create_memory_map", "input_stream",
                 "output_stream", "csv", "cuda", "dataset", "feather", "flight", "fs", "ipc", "json", "orc", "parquet",
                 "substrait", "open_file", "open_stream", "RecordBatchFileReader", "RecordBatchStreamReader",
                 "RecordBatchFileWriter", "RecordBatchStreamWriter", "lib.OSFile", "lib.MemoryMappedFile",
                 "lib.PythonFile", "lib.memory_map", "lib.create_memory_map", "lib.input_stream", "lib.output_stream",
                 "_csv", "_dataset", "_feather", "_flight", "_fs", "_json", "_orc", "_parquet", "compute.random",
                 "default_memory_pool", "total_allocated_bytes", "cpu_count", "set_cpu_count", "py_buffer_address",
                 "compute.assume_timezone", "compute.local_timestamp", "lib.default_memory_pool",
                 "lib.total_allocated_bytes", "lib.cpu_count", "lib.set_cpu_count")
)  # fmt: skip
#: Paths that are refused with all below them: their results differ between runs or machines, or they change such state.
FORBIDDEN = (
    "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today",
    "datetime.datetime.fromtimestamp", "datetime.date.fromtimestamp", "io.open", "io.open_code", "io.FileIO", "codecs.open",
    "gzip.open", "gzip.GzipFile", "bz2.open", "bz2.BZ2File", "lzma.open", "lzma.LZMAFile", "hashlib.file_digest",
    "calendar.setfirstweekday", "decimal.setcontext", "decimal.DefaultContext", "csv.field_size_limit",
    "csv.register_dialect", "operator.attrgetter", "operator.methodcaller", "typing.get_type_hints", "types.CodeType",
    "types.FunctionType", "types.FrameType", "types.ModuleType", "codecs.register", "codecs.register_error", "re.purge",
    "numpy.random", "numpy.ctypeslib", "numpy.f2py", "numpy.show_config", "numpy.seterr", "numpy.seterrcall",
    "numpy.setbufsize", "numpy.set_printoptions", "pandas.ExcelFile", "pandas.HDFStore", "pandas.Timestamp.now",
    "pandas.Timestamp.today", "pandas.Timestamp.utcnow", "pandas.set_option", "pandas.reset_option", "pandas.options",
    "pandas.option_context", "requests", "urllib3", "httpx", "aiohttp",
    *_FILES_OF_PANDAS, *_FILES_OF_NUMPY, *_FILES_OF_ARROW,
)  # fmt: skip
FORBIDDEN_BUILTINS = {
    "open": "reads files", "input": "reads from a person", "hash": "differs between processes for text",
    "id": "differs between runs", "exec": "runs code that cannot be seen", "eval": "runs code that cannot be seen",
    "compile": "runs code that cannot be seen", "globals": "reaches everything", "locals": "reaches everything",
    "vars": "reaches everything", "dir": "reaches everything", "__import__": "imports what cannot be seen",
    "breakpoint": "stops the worker", "help": "reaches everything",
}  # fmt: skip

#: Attributes that show the origin, the place or all contents of an object; a rebuilt function has others.
INTROSPECTION = frozenset(
    {"__annotations__", "__builtins__", "__cached__", "__closure__", "__code__", "__defaults__", "__dict__", "__doc__",
     "__file__", "__firstlineno__", "__func__", "__getattribute__", "__globals__", "__hash__", "__kwdefaults__",
     "__loader__", "__module__", "__name__", "__package__", "__path__", "__qualname__", "__reduce__", "__reduce_ex__",
     "__self__", "__signature__", "__sizeof__", "__spec__", "__subclasses__", "__text_signature__", "__traceback__",
     "__weakref__", "__wrapped__", "ag_frame", "co_code", "co_consts", "co_filename", "co_name", "cr_frame", "f_back",
     "f_builtins", "f_code", "f_globals", "f_lineno", "f_locals", "gi_code", "gi_frame", "tb_frame", "tb_lineno",
     "__array_interface__", "ctypes", "cache_clear", "cache_info", "cache_parameters"}
)  # fmt: skip
