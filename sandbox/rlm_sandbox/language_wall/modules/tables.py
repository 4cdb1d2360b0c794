"""What each module hands out: the tables behind the sanitised copies.

A module of the standard library that mixes harmless and dangerous things has a KEEP list: only those names
are given. Other modules give their public names, less their DROP list. A name is never given when the object
is in NEVER_GIVEN, wherever it turns up.
"""

from __future__ import annotations

from typing import Final


def _table(text: str) -> dict[str, frozenset[str]]:
    """Rows ``module: name name ...``; a row may go on over several lines."""
    rows: dict[str, set[str]] = {}
    module = ""
    for line in text.strip().splitlines():
        head, colon, names = line.partition(":")
        if colon:
            module = head.strip()
        rows.setdefault(module, set()).update((names if colon else line).split())
    return {module: frozenset(names) for module, names in rows.items()}


KEEP: Final = _table(
    """
    sys: version version_info maxsize platform byteorder float_info int_info hash_info getsizeof
        getrecursionlimit exit flags argv maxunicode implementation hexversion exc_info exception intern
        getdefaultencoding getfilesystemencoding getrefcount thread_info float_repr_style
        set_int_max_str_digits get_int_max_str_digits warnoptions builtin_module_names stdlib_module_names
        copyright api_version
    os: path sep linesep getcwd listdir scandir walk mkdir makedirs remove unlink rename replace rmdir
        removedirs stat lstat cpu_count urandom curdir pardir extsep altsep pathsep devnull name fspath
        fsencode fsdecode PathLike DirEntry access R_OK W_OK F_OK X_OK getpid times strerror stat_result
        error chmod utime
    inspect: signature Signature Parameter BoundArguments isfunction isclass ismethod isgeneratorfunction
        isgenerator iscoroutinefunction iscoroutine isawaitable isbuiltin isroutine ismodule isabstract
        isdatadescriptor isasyncgenfunction isasyncgen getdoc cleandoc getmro getfullargspec FullArgSpec
        getmembers getgeneratorstate getcoroutinestate getasyncgenstate GEN_CREATED GEN_RUNNING GEN_SUSPENDED
        GEN_CLOSED CORO_CREATED CORO_RUNNING CORO_SUSPENDED CORO_CLOSED AGEN_CREATED AGEN_RUNNING
        AGEN_SUSPENDED AGEN_CLOSED
    traceback: format_exc print_exc format_exception format_exception_only print_exception format_tb
        print_tb format_list extract_tb
    threading: Thread Lock RLock Event Condition Semaphore BoundedSemaphore Barrier BrokenBarrierError Timer
        local current_thread active_count get_ident get_native_id main_thread TIMEOUT_MAX ThreadError
    asyncio: run gather sleep create_task wait wait_for Queue LifoQueue PriorityQueue QueueEmpty QueueFull
        Lock Event Semaphore BoundedSemaphore Condition Barrier TimeoutError CancelledError
        InvalidStateError as_completed shield Future Task iscoroutine iscoroutinefunction isfuture
        ensure_future TaskGroup timeout timeout_at Timeout FIRST_COMPLETED ALL_COMPLETED FIRST_EXCEPTION
        to_thread current_task all_tasks Runner get_running_loop
    importlib: import_module
    warnings: warn simplefilter filterwarnings resetwarnings catch_warnings
    io: StringIO BytesIO TextIOBase IOBase RawIOBase BufferedIOBase TextIOWrapper BufferedReader
        BufferedWriter BufferedRandom IncrementalNewlineDecoder UnsupportedOperation SEEK_SET SEEK_CUR
        SEEK_END DEFAULT_BUFFER_SIZE open
    gc: collect isenabled
    copy: copy deepcopy Error error replace
    contextvars: ContextVar Token
    logging: getLogger basicConfig debug info warning warn error critical fatal exception log DEBUG INFO
        WARNING WARN ERROR CRITICAL FATAL NOTSET Logger Handler StreamHandler FileHandler NullHandler
        Formatter LoggerAdapter Filter LogRecord disable getLevelName addLevelName getLevelNamesMapping
        shutdown
    timeit: default_timer timeit repeat
    platform: system machine python_version python_version_tuple platform release processor
        python_implementation node architecture uname
    codecs: encode decode open BOM_UTF8 BOM_UTF16 BOM_UTF16_LE BOM_UTF16_BE BOM_UTF32 getreader getwriter
        getencoder getdecoder getincrementaldecoder getincrementalencoder iterencode
        escape_decode
    tempfile: TemporaryDirectory NamedTemporaryFile mkdtemp mkstemp gettempdir gettempdirb TemporaryFile
        SpooledTemporaryFile
    shutil: copy copyfile copyfileobj copy2 copytree rmtree move disk_usage make_archive get_archive_formats
        get_terminal_size ignore_patterns Error SameFileError
    json.decoder: JSONDecoder JSONDecodeError
    json.encoder: JSONEncoder
    concurrent.futures.thread: ThreadPoolExecutor BrokenThreadPool
    numpy.testing: assert_equal assert_almost_equal assert_approx_equal assert_array_equal assert_array_less
        assert_string_equal assert_array_almost_equal assert_allclose assert_raises assert_warns
        assert_array_compare assert_
    numpy.lib: Arrayterator NumpyVersion
    numpy.lib.stride_tricks: as_strided sliding_window_view
    numpy.lib.array_utils: byte_bounds normalize_axis_index normalize_axis_tuple
    numpy.lib.introspect: opt_func_info
    numpy.lib.mixins: NDArrayOperatorsMixin
    numpy.lib.recfunctions: append_fields apply_along_fields assign_fields_by_name drop_fields find_duplicates
        flatten_descr get_fieldstructure get_names get_names_flat join_by merge_arrays rec_append_fields
        rec_drop_fields rec_join recursive_fill_fields rename_fields repack_fields require_fields stack_arrays
        structured_to_unstructured unstructured_to_structured
    numpy.matlib: empty eye identity matrix ones rand randn repmat zeros
    pandas.util: hash_array hash_pandas_object
    pandas.testing: assert_frame_equal assert_series_equal assert_index_equal assert_extension_array_equal
    doctest: testmod run_docstring_examples testfile
    linecache:
    builtins:
    subprocess: run Popen PIPE DEVNULL STDOUT CompletedProcess CalledProcessError TimeoutExpired
        SubprocessError check_output check_call call
    """
)

DROP: Final = _table(
    """
    time: clock_settime clock_settime_ns pthread_getcpuclockid
    locale: bindtextdomain bind_textdomain_codeset textdomain gettext dgettext dcgettext
    abc: abstractclassmethod abstractstaticmethod get_cache_token update_abstractmethods
    contextlib: AsyncContextDecorator ContextDecorator
    enum: bin global_enum_repr global_flag_repr global_str member nonmember pickle_by_enum_name pickle_by_global_name
        show_flag_values verify EnumCheck CONTINUOUS NAMED_FLAGS UNIQUE
    functools: singledispatchmethod
    typing: ForwardRef evaluate_forward_ref get_overloads clear_overloads no_type_check_decorator
    types: DynamicClassAttribute CodeType FrameType CellType new_class prepare_class resolve_bases coroutine CapsuleType
        get_original_bases
    string: Formatter
    argparse: FileType
    concurrent.futures: ProcessPoolExecutor
    numpy: memmap DataSource lookfor source test show_runtime ctypeslib f2py core deprecate
    numpy.ma: frombuffer
    pandas: read_pickle to_pickle read_clipboard HDFStore read_hdf read_gbq test show_versions io core compat
    pandas.api.interchange: from_dataframe
    pyarrow: foreign_buffer lib
    polars: from_dataframe plugins
    polars.api: register_dataframe_namespace register_expr_namespace register_lazyframe_namespace
        register_series_namespace
    yaml: load load_all unsafe_load unsafe_load_all full_load full_load_all Loader UnsafeLoader FullLoader
        CLoader CUnsafeLoader CFullLoader YAMLObject add_constructor add_multi_constructor constructor cyaml
    matplotlib.artist: ArtistInspector
    matplotlib.ticker: StrMethodFormatter
    matplotlib: use test rc_file
    matplotlib.pyplot: switch_backend install_repl_displayhook uninstall_repl_displayhook
    sympy: sympify S_ parse_expr lambdify preview plot test doctest source init_session
        interactive_traversal plot_backends plot_implicit plot_parametric plot3d plot3d_parametric_line
        plot3d_parametric_surface textplot
    networkx: read_gpickle write_gpickle nx_agraph nx_pydot
    tqdm: tqdm_gui tgrange
    joblib: load dump Memory Parallel hash register_parallel_backend
    scipy: LowLevelCallable test show_config
    sklearn: show_versions
    """
)

UNUSED: Final = frozenset(
    {
        "abc.abstractclassmethod",
        "abc.abstractstaticmethod",
        "contextlib.ContextDecorator",
        "types.DynamicClassAttribute",
    }
    | {"contextlib.AsyncContextDecorator", "enum.EnumCheck", "enum.member", "enum.nonmember", "enum.verify"}
    | {"functools.singledispatchmethod"}
)
"""Classes of DROP that are harmless, and left out because no program was seen to use them."""

# Submodules of the standard library that come with their package; the others must be named by the policy.
STDLIB_SUBMODULES: Final = frozenset(
    """
    collections.abc os.path json.decoder json.encoder concurrent.futures concurrent.futures.thread
    html.parser html.entities email.message email.utils email.policy email.parser email.header
    email.charset email.errors email.headerregistry email.generator email.encoders email.mime
    email.mime.text email.mime.multipart email.mime.base email.mime.application email.mime.image
    email.mime.message email.contentmanager xml.etree xml.etree.ElementTree urllib.parse
    """.split()
)

DENIED_SUBMODULES: Final = frozenset(
    """
    numpy.ctypeslib numpy.f2py numpy.distutils numpy.core numpy.lib numpy.compat numpy.conftest
    numpy.ma.testutils numpy.matlib pandas.io pandas.core pandas.compat pandas.util
    pandas.conftest pandas.tests pyarrow.lib pyarrow.cffi pyarrow.jvm pyarrow.interchange pyarrow.cuda pyarrow.flight
    polars.interchange polars.plugins pyarrow.tests pyarrow.conftest pyarrow.vendored
    matplotlib.testing matplotlib.sphinxext matplotlib.backends
    matplotlib.tests matplotlib.texmanager matplotlib.animation scipy.LowLevelCallable scipy.weave
    sympy.parsing sympy.external sympy.utilities.autowrap sympy.utilities.codegen sympy.testing
    sympy.utilities.runtests sympy.utilities.source sympy.plotting tqdm.utils networkx.lazy_imports
    tqdm.gui tqdm.tk tqdm.rich tqdm.keras tqdm.dask
    sklearn.externals networkx.drawing.nx_agraph
    networkx.utils.misc networkx.conftest joblib.externals yaml.constructor lxml.html.clean
    """.split()
)

# What is harmless inside a denied package; the package itself provides what its KEEP row says.
ADMITTED_INSIDE_DENIED: Final = frozenset(
    """
    numpy.lib numpy.lib.array_utils numpy.lib.introspect numpy.lib.mixins numpy.lib.recfunctions numpy.lib.scimath
    numpy.lib.stride_tricks numpy.matlib pandas.util
    """.split()
)

# Names with underscores that a module provides anyway.
PUBLIC_DUNDERS: Final = frozenset({"__array_namespace_info__"})

ADMITTED_BY: Final = {
    "bs4": ("data",),
    "dateutil": ("data", "tables"),
    "matplotlib": ("data", "teaching"),
    "mpl_toolkits": ("data",),
    "networkx": ("data",),
    "numpy": ("data", "tables", "teaching"),
    "openpyxl": ("data", "tables"),
    "pandas": ("data", "tables", "teaching"),
    "patsy": ("data",),
    "polars": ("data",),
    "pyarrow": ("data", "tables"),
    "pytz": ("data", "tables"),
    "scipy": ("data",),
    "seaborn": ("data",),
    "sklearn": ("data",),
    "statsmodels": ("data",),
    "sympy": ("data",),
    "tabulate": ("data",),
    "tqdm": ("data",),
    "yaml": ("data", "tables"),
}
"""The packaged policies that admit a package which `default` does not, for the message that refuses it.

A session's process has no policy files to read; a test compares this with them.
"""

INSTEAD: Final = {
    "numpy.memmap": "read the file with numpy.load or numpy.fromfile",
    "numpy.DataSource": "open the file with open()",
    "numpy.ctypeslib": "foreign functions are not available",
    "numpy.f2py": "it starts compilers",
    "pandas.read_pickle": "pickles run code; save with to_parquet, to_json or to_csv",
    "pandas.to_pickle": "pickles run code; save with to_parquet, to_json or to_csv",
    "pandas.HDFStore": "it reads pickles; save with to_parquet, to_json or to_csv",
    "pandas.read_hdf": "it reads pickles; save with to_parquet, to_json or to_csv",
    "pandas.read_clipboard": "it starts programs; assign the text in the cell",
    "pyarrow.foreign_buffer": "it shows raw memory",
    "polars.from_dataframe": "it reads the addresses that an object names",
    "polars.plugins": "foreign functions are not available",
    "pyarrow.lib": "use the public names of pyarrow",
    "pandas.io": "use the public names of pandas",
    "pandas.core": "use the public names of pandas",
    "networkx.nx_agraph": "it starts programs",
    "networkx.nx_pydot": "it starts programs",
}
"""What to do without a part that is left out, or why it is left out."""

FETCHED: Final = (
    "to read from the network, fetch the file beside the session and load it with load_context, which also loads URLs "
    "that `urls` of the policy permits"
)
"""What to do where code may not reach the network."""
IMPORT_INSTEAD: Final = {
    **dict.fromkeys("urllib.request http.client socket ssl ftplib requests httpx aiohttp urllib3".split(), FETCHED),
    "unittest": "it reads and stores attributes by name; write the checks as functions with assert, and call them",
    "doctest": "it runs text as code; write the examples as assert statements",
    "pytest": "write the checks as functions with assert, and call them",
    "subprocess": "sessions start no programs; do it in Python, or in a shell beside the session",
    "multiprocessing": "sessions start no processes; use threads, as concurrent.futures.ThreadPoolExecutor",
    "pickle": "pickles run code; keep values in variables, or write them with json",
    "matplotlib.animation": "draw each frame as a figure of its own",
}
"""What to do without a module for which no packaged policy with a language wall helps."""

# `*` stands for every module except those whose only purpose is what the wall prevents (these may be named).
NOT_IN_STAR: Final = frozenset(
    """
    ctypes cffi gc importlib imp runpy code codeop pdb bdb trace marshal pickle shelve pty multiprocessing
    faulthandler pkgutil zipimport site sysconfig signal mmap fcntl resource posix nt atexit subprocess
    socket antigravity
    """.split()
)

# Functions and classes from these are not passed on by other modules that happen to hold them.
FOREIGN_ORIGINS: Final = frozenset(
    """
    os posix nt subprocess socket ctypes _ctypes importlib runpy pickle _pickle marshal gc code codeop
    shelve multiprocessing signal pty fcntl resource mmap cffi _posixsubprocess pdb bdb trace pkgutil
    zipimport site sysconfig imp webbrowser http ftplib smtplib telnetlib faulthandler
    """.split()
)
MAY_HOLD_FOREIGN: Final = frozenset({"os", "shutil", "tempfile", "pathlib", "glob"})

NEVER_GIVEN: Final = tuple(
    """
    builtins.eval builtins.exec builtins.compile builtins.__import__ builtins.open builtins.getattr
    builtins.setattr builtins.delattr builtins.hasattr builtins.vars builtins.globals builtins.locals
    builtins.input builtins.breakpoint builtins.__build_class__ importlib.import_module importlib.reload
    types.FunctionType types.CodeType types.FrameType types.CellType types.ModuleType types.TracebackType
    os.system os.popen subprocess.Popen subprocess.run subprocess.call subprocess.check_output
    socket.socket ctypes.CDLL typing.get_type_hints typing.ForwardRef operator.attrgetter
    operator.methodcaller string.Formatter pickle.loads pickle.load pickle.Unpickler marshal.loads
    functools.update_wrapper functools.wraps inspect.getattr_static inspect.getmembers
    inspect.currentframe inspect.stack sys._getframe gc.get_objects code.InteractiveInterpreter
    runpy.run_path abc.ABCMeta enum.EnumMeta copyreg.pickle timeit.Timer timeit.timeit
    contextvars.copy_context contextvars.Context collections.namedtuple dataclasses.dataclass
    dataclasses.make_dataclass enum.global_enum numpy.frombuffer numpy.fromfile numpy.save struct.pack_into
    matplotlib.artist.getp matplotlib.artist.get matplotlib.artist.ArtistInspector matplotlib.pyplot.getp
    matplotlib.pyplot.get pyarrow.lib.foreign_buffer pyarrow.lib.py_buffer
    pandas.api.extensions.register_dataframe_accessor pandas.api.extensions.register_series_accessor
    pandas.api.extensions.register_index_accessor
    sympy.external.importtools.import_module sympy.utilities.source.get_class networkx.lazy_imports.attach
    networkx.classes.function.freeze urllib.request.urlopen
    pandas.compat._optional.import_optional_dependency tqdm.utils.envwrap
    scipy._lib._array_api_override.array_namespace scipy._lib.array_api_compat.common._helpers.array_namespace
    sklearn.utils._array_api.get_namespace sklearn.utils._array_api.get_namespace_and_device
    sklearn.externals.array_api_compat.common._helpers.array_namespace sklearn.utils.parallel.Parallel
    """.split()
)
"""Objects that are provided under no name; where a session needs one, ``shims`` has a safe one in its place."""

KEEP_MODULES: Final = (
    "scipy.spatial.transform._rigid_transform.RigidTransform",
    "scipy.spatial.transform._rotation.Rotation",
)
"""Classes whose objects keep a module: a class that derives from one, or passes for one, would receive it."""
