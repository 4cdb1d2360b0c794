/* The part of the language wall that decides in C: which frames belong to a session, what a session's calls of
dangerous builtins do, which audited events it may cause, and whether the wall has been changed.

It is in C because Python could be turned against it. Its state is static memory, to which no Python object leads; a
guard written in Python has a `__closure__`, a `__globals__` and a class that somebody may reach. Everything here
assumes the worst of its arguments: types are compared by identity, and no method of a session's object is called to
judge it.

    sessions    a frame is a session's if its builtins are; no name and no maker of the code decides
    originals   `getattr`, `exec`, `open` ... called from a session's frame become the session's own of that name
    type        a class made from a session's frame is made by the session's rules
    proxies     a mapping proxy compares a copy of its mapping with foreign objects, never the mapping itself
    overlay     a file that code names is looked for in its own folder first, and created there
    functions   a library's function refuses every change while it works for a session
    methods     methods compiled by Cython check the object that they are called with
    audit       files, processes, the network and late compilation (PEP 578)
    seal        the parts of the wall, for comparison with what they were
*/

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define Py_BUILD_CORE 1 /* for the running code without a frame object, which costs more than the call that is judged */
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- tables of addresses -------------------------------------------------------------------------

Keys are addresses, so no `__hash__` and no `__eq__` runs. A Python dict or set would call both: a metaclass that
defines them could pass for any class in it. Whoever adds an address keeps the object alive, or removes the entry when
the object is freed: CPython gives a freed address to the next object of that size.
*/

struct entry {
    void *key;
    void *value;
};

struct table {
    struct entry *entries;
    size_t mask, filled;
};

/* Marks a place that was taken out. The search goes past it: a collision may have put other entries behind it. */
static char removed;

static struct entry *place(const struct table *table, const void *key) {
    if (table->entries == NULL) {
        return NULL;
    }
    struct entry *gap = NULL;
    /* Objects are aligned, so the lowest four bits hardly differ. The loop ends because `put` grows the table when two
    thirds of it are used. */
    for (size_t at = ((uintptr_t)key >> 4) & table->mask;; at = (at + 1) & table->mask) {
        struct entry *entry = &table->entries[at];
        if (entry->key == key) {
            return entry;
        }
        if (entry->key == NULL) {
            return gap != NULL ? gap : entry;
        }
        if (entry->key == &removed && gap == NULL) {
            gap = entry;
        }
    }
}

static void *find(const struct table *table, const void *key) {
    const struct entry *entry = place(table, key);
    return entry != NULL && entry->key == key ? entry->value : NULL;
}

static int grow(struct table *table) {
    size_t size = table->entries == NULL ? 64 : 2 * (table->mask + 1);
    struct table larger = {PyMem_Calloc(size, sizeof(struct entry)), size - 1, 0};
    if (larger.entries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t at = 0; table->entries != NULL && at <= table->mask; at++) {
        struct entry *entry = &table->entries[at];
        if (entry->key != NULL && entry->key != &removed) {
            *place(&larger, entry->key) = *entry;
            larger.filled++;
        }
    }
    PyMem_Free(table->entries);
    *table = larger;
    return 0;
}

static int put(struct table *table, void *key, void *value) {
    if ((table->entries == NULL || 3 * table->filled >= 2 * table->mask) && grow(table) < 0) {
        return -1;
    }
    struct entry *entry = place(table, key);
    table->filled += entry->key == NULL;
    *entry = (struct entry){key, value};
    return 0;
}

/* Take an entry out; returns its value. */
static void *take(struct table *table, const void *key) {
    struct entry *entry = place(table, key);
    if (entry == NULL || entry->key != key) {
        return NULL;
    }
    void *value = entry->value;
    *entry = (struct entry){&removed, NULL};
    return value;
}

/* --- who calls -----------------------------------------------------------------------------------*/

enum { TRUSTED = 1, GENERATOR = 2, IMPORTER = 4, OURS = 8, STATEMENTS = 16 };

static struct table sessions; /* the builtins of sessions */
static struct table marks;    /* code objects, and what they are */
static PyObject *newest;      /* the builtins of the session that was added last */
static int sealed;

static inline int is_session(const void *builtins) {
    return find(&sessions, builtins) != NULL;
}

/* The builtins of the session whose code makes this call; NULL if the caller is not a session's. A call by C code
counts as a call by the Python code that called it, because C functions have no frame: `map(getattr, ...)` is the
session's.

Every frame carries a reference to its builtins, which CPython sets when a function is made and which code cannot change
afterwards. So they tell who wrote a function, whoever calls it and whatever its names say. */
static inline PyObject *calling_session(void) {
    if (sessions.filled == 0) {
        return NULL;
    }
    PyObject *builtins = PyEval_GetBuiltins();
    return builtins != NULL && is_session(builtins) ? builtins : NULL;
}

static intptr_t mark_of(const void *code) {
    return (intptr_t)find(&marks, code);
}

/* Return the code that runs (borrowed), or NULL if none does. `PyEval_GetFrame` would create a frame object. The layout
of the internal frame differs between minor versions, so each has a branch. */
static PyObject *running_code(void) {
    PyThreadState *thread = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030d0000
    _PyInterpreterFrame *frame = _PyThreadState_GetFrame(thread);
    return frame == NULL ? NULL : frame->f_executable;
#elif PY_VERSION_HEX >= 0x030c0000
    _PyInterpreterFrame *frame = _PyThreadState_GetFrame(thread);
    return frame == NULL ? NULL : (PyObject *)frame->f_code;
#else
    _PyInterpreterFrame *frame = thread->cframe->current_frame;
    while (frame != NULL && _PyFrame_IsIncomplete(frame)) { /* a frame whose first instructions have not run yet */
        frame = frame->previous;
    }
    return frame == NULL ? NULL : (PyObject *)frame->f_code;
#endif
}

static intptr_t mark_of_caller(void) {
    PyObject *code = running_code();
    return code == NULL ? 0 : mark_of(code);
}

/* Whether the caller may change the wall. Once it is sealed, only the wall's own code may: a session that finds this
module in `sys.modules`, or as some object's attribute, gains nothing by it. */
static int may_change(void) {
    if (calling_session() == NULL && (!sealed || mark_of_caller() & OURS)) {
        return 1;
    }
    PyErr_SetString(PyExc_SystemError, "the language wall is sealed");
    return 0;
}

static PyObject *add_session(PyObject *module, PyObject *builtins) {
    if (!may_change()) {
        return NULL;
    }
    if (!PyDict_CheckExact(builtins)) {
        PyErr_SetString(PyExc_TypeError, "the builtins of a session must be a dict");
        return NULL;
    }
    if (!is_session(builtins)) {
        if (put(&sessions, builtins, builtins) < 0) {
            return NULL;
        }
        Py_INCREF(builtins); /* for ever: the address must not become another dict's */
    }
    newest = builtins;
    Py_RETURN_NONE;
}

static PyObject *session_frame(PyObject *module, PyObject *frame) {
    if (!PyFrame_Check(frame)) {
        PyErr_SetString(PyExc_TypeError, "expected a frame");
        return NULL;
    }
    PyObject *builtins = PyFrame_GetBuiltins((PyFrameObject *)frame);
    int own = is_session(builtins);
    Py_DECREF(builtins);
    return PyBool_FromLong(own);
}

static PyObject *session_function(PyObject *module, PyObject *function) {
    return PyBool_FromLong(PyFunction_Check(function) && is_session(((PyFunctionObject *)function)->func_builtins));
}

static int mark_code(PyObject *code, intptr_t bits) {
    intptr_t known = mark_of(code);
    if ((known | bits) != known) {
        if (put(&marks, code, (void *)(known | bits)) < 0) {
            return -1;
        }
        if (known == 0) {
            Py_INCREF(code); /* its address must stay its own */
        }
    }
    /* The code of inner functions, comprehensions and classes is a constant of the code around it. */
    PyObject *constants = ((PyCodeObject *)code)->co_consts;
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(constants); at++) {
        PyObject *constant = PyTuple_GET_ITEM(constants, at);
        if (PyCode_Check(constant) && mark_code(constant, bits) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *mark(PyObject *module, PyObject *args) {
    PyObject *code;
    int bits;
    if (!may_change() || !PyArg_ParseTuple(args, "O!i", &PyCode_Type, &code, &bits) || mark_code(code, bits) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* --- sets that compiled code asks ----------------------------------------------------------------

Compiled code evaluates `type(x) in CLEAN` at each guarded access. These sets are constants of that code, which Python's
own sets cannot be: IPython hashes code objects, and with them their constants. They have no method that changes them.
Objects compare by identity, so that no metaclass has a say. A set of texts holds exact strings only.
*/

typedef struct {
    PyObject_HEAD
    struct table table;
    PyObject *forget; /* what each of the weak references calls when its object goes */
    PyObject *texts;  /* a set of strings, or NULL */
} Members;

typedef struct {
    PyWeakReference reference;
    void *key;
} Key;

static PyTypeObject Members_Type, Key_Type;

static int members_contains(PyObject *self, PyObject *value) {
    PyObject *texts = ((Members *)self)->texts;
    if (texts != NULL) {
        return PyUnicode_CheckExact(value) ? PySet_Contains(texts, value) : 0;
    }
    return find(&((Members *)self)->table, value) != NULL;
}

static PySequenceMethods members_sequence = {.sq_contains = members_contains};

static PyTypeObject Members_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rlm_sandbox.language_wall._core.Members",
    .tp_basicsize = sizeof(Members),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_as_sequence = &members_sequence,
};

static PyTypeObject Key_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rlm_sandbox.language_wall._core.Key",
    .tp_basicsize = sizeof(Key),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
};

static PyObject *forget(PyObject *self, PyObject *reference) {
    if (Py_TYPE(reference) == &Key_Type) {
        void *key = ((Key *)reference)->key;
        struct table *table = &((Members *)self)->table;
        if (find(table, key) == reference) { /* the address may be another object's by now */
            Py_DECREF((PyObject *)take(table, key));
        }
    }
    Py_RETURN_NONE;
}

static PyMethodDef forget_method = {"forget", forget, METH_O, NULL};

static PyObject *new_members(int of_texts) {
    Members *self = PyObject_New(Members, &Members_Type);
    if (self != NULL) {
        self->table = (struct table){NULL, 0, 0};
        self->texts = of_texts ? PySet_New(NULL) : NULL;
        self->forget = of_texts ? NULL : PyCFunction_New(&forget_method, (PyObject *)self);
        if (self->texts == NULL && self->forget == NULL) {
            Py_CLEAR(self);
        }
    }
    return (PyObject *)self;
}

static PyObject *members(PyObject *module, PyObject *unused) {
    return new_members(0);
}

static PyObject *texts(PyObject *module, PyObject *unused) {
    return new_members(1);
}

static PyObject *subclasses_of; /* type.__subclasses__ */

enum { MOST_TEXTS = 20000 };

/* A full set accepts no more texts, which costs only time: an unknown text takes the longer way. */
static int admit_text(PyObject *texts, PyObject *value) {
    if (!PyUnicode_CheckExact(value)) {
        PyErr_SetString(PyExc_TypeError, "expected a str");
        return -1;
    }
    return PySet_GET_SIZE(texts) < MOST_TEXTS ? PySet_Add(texts, value) : 0;
}

static int parse_member(PyObject *args, Members **set, PyObject **value) {
    return may_change() && PyArg_ParseTuple(args, "O!O", &Members_Type, set, value);
}

/* -1 with an exception; an object that is in the set already stays. */
static int admit_object(Members *set, PyObject *value) {
    if (find(&set->table, value) != NULL) {
        return 0;
    }
    PyObject *reference = PyObject_CallFunctionObjArgs((PyObject *)&Key_Type, value, set->forget, NULL);
    if (reference == NULL) {
        return -1;
    }
    ((Key *)reference)->key = value;
    return put(&set->table, value, reference);
}

static PyObject *admit(PyObject *module, PyObject *args) {
    Members *set;
    PyObject *value;
    if (!parse_member(args, &set, &value)) {
        return NULL;
    }
    if (set->texts != NULL) {
        return admit_text(set->texts, value) < 0 ? NULL : Py_NewRef(Py_None);
    }
    return admit_object(set, value) < 0 ? NULL : Py_NewRef(Py_None);
}

static int admit_below(Members *set, Members *others, PyObject *class) {
    if (find(&others->table, class) == NULL && admit_object(set, class) < 0) {
        return -1;
    }
    /* The method of `type` itself: a metaclass may define another one. */
    PyObject *below = PyObject_CallOneArg(subclasses_of, class);
    int failed = below == NULL;
    for (Py_ssize_t at = 0; !failed && at < PyList_GET_SIZE(below); at++) {
        failed = admit_below(set, others, PyList_GET_ITEM(below, at)) < 0;
    }
    Py_XDECREF(below);
    return failed ? -1 : 0;
}

/* Whether `admit_below` would find nothing new. This takes no reference to a class: a reference writes to the class's
page, and after a fork each first write to a page copies it. From 3.12 on the answer is always no: there the classes of
libraries are immortal, and the subclasses of a built-in class are stored elsewhere. */
static int is_all_known(const Members *set, const Members *others, PyObject *class) {
#if PY_VERSION_HEX < 0x030c0000
    if (find(&others->table, class) == NULL && find(&set->table, class) == NULL) {
        return 0;
    }
    PyObject *below = ((PyTypeObject *)class)->tp_subclasses, *address, *reference;
    for (Py_ssize_t at = 0; below != NULL && PyDict_Next(below, &at, &address, &reference);) {
        PyObject *subclass = PyWeakref_GET_OBJECT(reference);
        if (subclass != Py_None && !is_all_known(set, others, subclass)) {
            return 0;
        }
    }
    return 1;
#else
    return 0;
#endif
}

/* Each cell looks for new metaclasses. In Python this took a tenth of the time of a small cell. */
static PyObject *admit_classes(PyObject *module, PyObject *args) {
    Members *set, *others;
    PyObject *class;
    if (!may_change() ||
        !PyArg_ParseTuple(args, "O!O!O!", &Members_Type, &set, &Members_Type, &others, &PyType_Type, &class)) {
        return NULL;
    }
    return !is_all_known(set, others, class) && admit_below(set, others, class) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *expel(PyObject *module, PyObject *args) {
    Members *set;
    PyObject *value;
    if (!parse_member(args, &set, &value)) {
        return NULL;
    }
    Py_XDECREF((PyObject *)take(&set->table, value));
    Py_RETURN_NONE;
}

/* --- originals -----------------------------------------------------------------------------------

Hiding the dangerous builtins fails, because libraries keep them in attributes and default arguments. Here it does not
matter who holds one. Called from a session's frame, it acts as the session's own builtin of that name, or is refused if
the session has none. The same holds for a library that was handed one and calls it while it works for the session
(`pool.submit(function)`). Only code that names the builtin itself calls it for itself.
*/

static int in_force;
static int reads_system(PyObject *const *args, Py_ssize_t count, PyObject *keywords);

static int armed(void);
static int works_for_session(intptr_t others, int nobody);
static int watches_nobody(void);
static struct table named; /* code objects, and which originals they name themselves */

static int contains(PyObject *names, const char *name) {
    for (Py_ssize_t at = 0; names != NULL && at < PyTuple_GET_SIZE(names); at++) {
        if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, at), name) == 0) {
            return 1;
        }
    }
    return 0;
}

static uintptr_t named_by(PyObject *code);

/* The builtins whose rules apply to this call of an original; NULL if it may act as itself.

A library that writes `getattr(...)` has that name in its code object. One that calls whatever it was given does not,
and then it works for the session, unless it is our own code or the import system's. */
static PyObject *rules_for(int which) {
    if (sessions.filled == 0) {
        return NULL;
    }
    PyObject *builtins = PyEval_GetBuiltins();
    if (builtins != NULL && is_session(builtins)) {
        return builtins;
    }
    PyObject *code = in_force ? running_code() : NULL;
    if (code == NULL || !PyCode_Check(code) || mark_of(code) & (TRUSTED | OURS | IMPORTER) ||
        named_by(code) >> which & 1) {
        return NULL;
    }
    return armed() ? newest : NULL;
}

static PyObject *by_session(PyObject *builtins, const char *name, PyObject *const *args, Py_ssize_t count,
                            PyObject *keywords) {
    /* Looked up at each call and held during it: the session may replace the entry of its builtins meanwhile. */
    PyObject *own = PyDict_GetItemString(builtins, name);
    if (own == NULL) {
        PyErr_Format(PyExc_NameError, "'%s' is not available in this session (policy field language.blocked_names)",
                     name);
        return NULL;
    }
    Py_INCREF(own);
    PyObject *result = PyObject_Vectorcall(own, args, (size_t)count, keywords);
    Py_DECREF(own);
    return result;
}

#define EACH_ORIGINAL(DO) \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14)

static const char *const ORIGINALS[] = {"getattr", "setattr", "delattr",    "hasattr",         "vars",
                                        "eval",    "exec",    "compile",    "__import__",      "open",
                                        "globals", "locals",  "breakpoint", "__build_class__", "input"};
enum { ORIGINAL_COUNT = sizeof(ORIGINALS) / sizeof(ORIGINALS[0]), OPENING = 9, BUILDING = 13 };

/* A bit for each original that the code names, as a builtin or a variable. A class body names none: the names in it are
attributes of the class. */
static uintptr_t named_by(PyObject *code) {
    uintptr_t found = (uintptr_t)find(&named, code);
    if (found != 0) {
        return found;
    }
    PyObject *variables = PyCode_GetVarnames((PyCodeObject *)code), *free = PyCode_GetFreevars((PyCodeObject *)code);
    found = (uintptr_t)1 << ORIGINAL_COUNT | (uintptr_t)1 << BUILDING;
    for (int at = 0; at < ORIGINAL_COUNT; at++) {
        const char *name = ORIGINALS[at];
        if (contains(((PyCodeObject *)code)->co_names, name) || contains(variables, name) || contains(free, name)) {
            found |= (uintptr_t)1 << at;
        }
    }
    Py_XDECREF(variables);
    Py_XDECREF(free);
    if (put(&named, code, (void *)found) == 0) {
        Py_INCREF(code); /* its address must stay its own */
    } else {
        PyErr_Clear();
    }
    return found;
}

static PyCFunction original[ORIGINAL_COUNT];
static PyMethodDef replaced[ORIGINAL_COUNT];

typedef PyObject *(*Fast)(PyObject *, PyObject *const *, Py_ssize_t);
typedef PyObject *(*FastWithKeywords)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);

#define GUARD_OF(N)                                                                                             \
    static PyObject *plain_##N(PyObject *self, PyObject *args) {                                                \
        PyObject *builtins = rules_for(N);                                                                      \
        if (builtins == NULL) {                                                                                 \
            return original[N](self, args);                                                                     \
        }                                                                                                       \
        int variadic = args != NULL && PyTuple_CheckExact(args);                                                \
        return by_session(builtins, ORIGINALS[N], variadic ? &PyTuple_GET_ITEM(args, 0) : NULL,                 \
                          variadic ? PyTuple_GET_SIZE(args) : 0, NULL);                                         \
    }                                                                                                           \
    static PyObject *fast_##N(PyObject *self, PyObject *const *args, Py_ssize_t count) {                        \
        PyObject *builtins = rules_for(N);                                                                      \
        return builtins == NULL ? ((Fast)(void *)original[N])(self, args, count)                                \
                                : by_session(builtins, ORIGINALS[N], args, count, NULL);                        \
    }                                                                                                           \
    static PyObject *keywords_##N(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {   \
        PyObject *builtins = rules_for(N);                                                                      \
        if (builtins == NULL || (N == OPENING && reads_system(args, count, names))) {                           \
            return ((FastWithKeywords)(void *)original[N])(self, args, count, names);                           \
        }                                                                                                       \
        return by_session(builtins, ORIGINALS[N], args, count, names);                                          \
    }

EACH_ORIGINAL(GUARD_OF)

#define ROW_OF(N) {plain_##N, (PyCFunction)(void *)fast_##N, (PyCFunction)(void *)keywords_##N},
static const PyCFunction GUARDS[ORIGINAL_COUNT][3] = {EACH_ORIGINAL(ROW_OF)};

/* Change the method definitions behind the builtin functions. The function objects stay, so the change also reaches
every library that has kept one in an attribute or a default. */
static int guard_originals(void) {
    PyObject *builtins = PyImport_ImportModule("builtins");
    for (int at = 0; builtins != NULL && at < ORIGINAL_COUNT; at++) {
        PyObject *function = PyObject_GetAttrString(builtins, ORIGINALS[at]);
        if (function == NULL || !PyCFunction_CheckExact(function)) {
            PyErr_Format(PyExc_SystemError, "the builtin '%s' is not CPython's", ORIGINALS[at]);
            Py_XDECREF(function);
            Py_DECREF(builtins);
            return -1;
        }
        PyCFunctionObject *object = (PyCFunctionObject *)function;
        int convention = object->m_ml->ml_flags & (METH_FASTCALL | METH_KEYWORDS);
        int way = convention == METH_FASTCALL ? 1 : convention == (METH_FASTCALL | METH_KEYWORDS) ? 2 : 0;
        original[at] = object->m_ml->ml_meth;
        replaced[at] = *object->m_ml;
        replaced[at].ml_meth = GUARDS[at][way];
        object->m_ml = &replaced[at]; /* the function itself is never freed: `builtins` and we hold it */
    }
    Py_XDECREF(builtins);
    return builtins == NULL ? -1 : 0;
}

/* --- the session's own getattr and hasattr -------------------------------------------------------*/

static PyObject *harmless;     /* attribute names known to be harmless on every object */
static PyObject *slow_getattr; /* decides about any other */

/* Returns 1 if found, 0 if there is no such attribute, -1 for any other error. No AttributeError is made for 0, which
is what takes the time of a `hasattr` that is False. */
static int look_up(PyObject *object, PyObject *name, PyObject **value) {
#if PY_VERSION_HEX >= 0x030d0000
    return PyObject_GetOptionalAttr(object, name, value);
#else
    return _PyObject_LookupAttr(object, name, value);
#endif
}

static PyObject *session_getattr(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    int quick = count == 2 || count == 3 ? members_contains(harmless, args[1]) : 0;
    if (quick < 0) {
        return NULL;
    }
    if (!quick) {
        return PyObject_Vectorcall(slow_getattr, args, (size_t)count, NULL);
    }
    if (count == 2) {
        return PyObject_GetAttr(args[0], args[1]);
    }
    PyObject *value;
    int found = look_up(args[0], args[1], &value);
    return found < 0 ? NULL : found ? value : Py_NewRef(args[2]);
}

static PyObject *session_hasattr(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 2) {
        PyErr_Format(PyExc_TypeError, "hasattr expected 2 arguments, got %zd", count);
        return NULL;
    }
    PyObject *value;
    int found = members_contains(harmless, args[1]);
    if (found > 0) {
        found = look_up(args[0], args[1], &value);
    } else if (found == 0) {
        value = PyObject_Vectorcall(slow_getattr, args, (size_t)count, NULL);
        found = value != NULL ? 1 : PyErr_ExceptionMatches(PyExc_AttributeError) ? 0 : -1;
        if (found == 0) {
            PyErr_Clear();
        }
    }
    if (found < 0) {
        return NULL;
    }
    if (found) {
        Py_DECREF(value);
    }
    return PyBool_FromLong(found);
}

static PyObject *give_getattr(PyObject *module, PyObject *function) {
    if (!may_change()) {
        return NULL;
    }
    Py_XSETREF(slow_getattr, Py_NewRef(function));
    Py_RETURN_NONE;
}

/* --- type ----------------------------------------------------------------------------------------

A session's frame makes classes by the session's rules. A library makes its own classes, but can be led to make one
from what it was handed: the class of a class is the raw `type`, and `ChainMap.new_child` calls `self.__class__(m,
*self.maps)`. So a class that a library makes for a session is checked too, before anybody has it. So is one that the
session's own statement makes: `__init_subclass__` and `__set_name__` have it before the statement has ended.
*/

static ternaryfunc type_call;
static newfunc type_new;
static unsigned long main_thread; /* in which a kernel makes classes of its own */
/* Both take metaclass, bases and namespace, and give the namespace to make the class from, or refuse. */
static PyObject *look_at_class, *look_at_own;

static int makes_classes(PyTypeObject *type) {
    return PyType_HasFeature(type, Py_TPFLAGS_TYPE_SUBCLASS);
}

/* `type(x)` with one argument only returns a class, which harms nobody. Any other call of a metaclass makes one. */
static PyObject *guarded_type_call(PyObject *type, PyObject *args, PyObject *keywords) {
    if (makes_classes((PyTypeObject *)type) && PyTuple_GET_SIZE(args) != 1) {
        PyObject *builtins = calling_session();
        if (builtins != NULL) {
            PyObject *own = type == (PyObject *)&PyType_Type ? PyDict_GetItemString(builtins, "type") : NULL;
            if (own != NULL) {
                return PyObject_Call(own, args, keywords);
            }
            PyErr_SetString(PyExc_TypeError, "a metaclass of a library cannot be called in this session: write "
                                             "`class Name(Base): ...`");
            return NULL;
        }
    }
    return type_call(type, args, keywords);
}

static PyObject *guarded_type_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    if (calling_session() != NULL) {
        PyErr_SetString(PyExc_TypeError, "this function makes classes that nobody checks: write "
                                         "`class Name(Base): ...` or call `type(name, bases, namespace)`");
        return NULL;
    }
    /* A function of ours may call what the session gave it, and C code has no frame of its own: ours is checked, too. */
    intptr_t marks_of = mark_of_caller();
    PyObject *look = marks_of & STATEMENTS ? look_at_own : look_at_class;
    if (look == NULL || (look == look_at_class &&
                         (!in_force || marks_of & (TRUSTED | IMPORTER) ||
                          !works_for_session(IMPORTER, watches_nobody() && PyThread_get_thread_ident() != main_thread)))) {
        return type_new(type, args, keywords);
    }
    PyObject *name, *bases, *namespace;
    if (!PyArg_ParseTuple(args, "UO!O!:type.__new__", &name, &PyTuple_Type, &bases, &PyDict_Type, &namespace)) {
        return NULL;
    }
    namespace = PyObject_CallFunctionObjArgs(look, type, bases, namespace, NULL);
    PyObject *looked_at = namespace == NULL ? NULL : PyTuple_Pack(3, name, bases, namespace);
    Py_XDECREF(namespace);
    PyObject *made = looked_at == NULL ? NULL : type_new(type, looked_at, keywords);
    Py_XDECREF(looked_at);
    return made;
}

static PyObject *give_class_check(PyObject *module, PyObject *args) {
    PyObject *of_libraries, *own;
    if (!may_change() || !PyArg_ParseTuple(args, "OO", &of_libraries, &own)) {
        return NULL;
    }
    Py_XSETREF(look_at_class, Py_NewRef(of_libraries));
    Py_XSETREF(look_at_own, Py_NewRef(own));
    Py_RETURN_NONE;
}

/* A class copies the slots of its base when it is made. So metaclasses that exist already hold the functions of `type`
and have to be changed one by one; later ones inherit ours. */
static int guard_metaclass(PyTypeObject *type) {
    if (type->tp_call == type_call) {
        type->tp_call = guarded_type_call;
    }
    if (type->tp_new == type_new) {
        type->tp_new = guarded_type_new;
    }
    PyObject *list = PyObject_CallMethod((PyObject *)&PyType_Type, "__subclasses__", "O", type);
    for (Py_ssize_t at = 0; list != NULL && at < PyList_GET_SIZE(list); at++) {
        if (guard_metaclass((PyTypeObject *)PyList_GET_ITEM(list, at)) < 0) {
            Py_CLEAR(list);
        }
    }
    Py_XDECREF(list);
    return list == NULL ? -1 : 0;
}

/* A slot wrapper, such as `type.__call__`, has a pointer of its own to the function that its slot had when the class
was made. Changing the slot does not reach it, so the pointer is replaced by `to`. */
static int redirect(PyTypeObject *type, const char *name, void *to) {
    PyObject *namespace = PyObject_GetAttrString((PyObject *)type, "__dict__");
    PyObject *wrapper = namespace == NULL ? NULL : PyMapping_GetItemString(namespace, name);
    Py_XDECREF(namespace);
    if (wrapper == NULL) {
        return -1;
    }
    if (Py_TYPE(wrapper) == &PyWrapperDescr_Type) {
        ((PyWrapperDescrObject *)wrapper)->d_wrapped = to;
    } else {
        PyErr_Format(PyExc_SystemError, "%s.%s is not CPython's", type->tp_name, name);
    }
    Py_DECREF(wrapper);
    return PyErr_Occurred() ? -1 : 0;
}

static int guard_type(void) {
    main_thread = PyThread_get_thread_ident();
    type_call = PyType_Type.tp_call;
    type_new = PyType_Type.tp_new;
    return guard_metaclass(&PyType_Type) < 0 ? -1 : redirect(&PyType_Type, "__call__", guarded_type_call);
}

/* --- mapping proxies -----------------------------------------------------------------------------

`proxy == x` calls `x.__eq__(mapping)` with the mapping itself and not the proxy (bpo-43838). A session's class could
keep it, and would have the live, writable namespace of a library's class. It gets a copy instead.
*/

typedef struct {
    PyObject_HEAD
    PyObject *mapping;
} Proxy;

static richcmpfunc proxy_compare;
static binaryfunc proxy_or;

static PyObject *copy_of(PyObject *proxy) {
    PyObject *mapping = ((Proxy *)proxy)->mapping;
    return PyDict_Check(mapping) ? PyDict_Copy(mapping) : Py_NewRef(mapping);
}

/* Return the operand itself, or for a proxy a copy of its mapping. */
static PyObject *operand(PyObject *value) {
    return Py_TYPE(value) == &PyDictProxy_Type ? copy_of(value) : Py_NewRef(value);
}

static PyObject *guarded_proxy_compare(PyObject *left, PyObject *right, int operation) {
    if (!in_force || PyDict_CheckExact(right) || Py_TYPE(right) == &PyDictProxy_Type) {
        return proxy_compare(left, right, operation);
    }
    PyObject *copy = copy_of(left);
    PyObject *result = copy == NULL ? NULL : PyObject_RichCompare(copy, right, operation);
    Py_XDECREF(copy);
    return result;
}

static PyObject *guarded_proxy_or(PyObject *left, PyObject *right) {
    if (!in_force) {
        return proxy_or(left, right);
    }
    PyObject *first = operand(left), *second = operand(right);
    PyObject *result = first == NULL || second == NULL ? NULL : PyNumber_Or(first, second);
    Py_XDECREF(first);
    Py_XDECREF(second);
    return result;
}

static int guard_proxies(void) {
    proxy_compare = PyDictProxy_Type.tp_richcompare;
    proxy_or = PyDictProxy_Type.tp_as_number->nb_or;
    PyDictProxy_Type.tp_richcompare = guarded_proxy_compare;
    PyDictProxy_Type.tp_as_number->nb_or = guarded_proxy_or;
    static const char *const COMPARISONS[] = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"};
    for (size_t at = 0; at < 6; at++) {
        if (redirect(&PyDictProxy_Type, COMPARISONS[at], guarded_proxy_compare) < 0) {
            return -1;
        }
    }
    return redirect(&PyDictProxy_Type, "__or__", guarded_proxy_or) < 0
               ? -1
               : redirect(&PyDictProxy_Type, "__ror__", guarded_proxy_or);
}

/* --- functions -----------------------------------------------------------------------------------

A method of a library stores on whatever it is given as `self`, a function too. Functions have no flag that forbids it,
as classes have, so a table has those that existed when the libraries were frozen. A function's own code may store on
it (a cache). Modules that are imported later may change what they find, as any import may.
*/

static struct table frozen; /* functions, which live for ever */
static setattrofunc function_store;

static int guarded_function_store(PyObject *function, PyObject *name, PyObject *value) {
    if (find(&frozen, function) != NULL && running_code() != PyFunction_GET_CODE(function) && in_force && armed()) {
        PyErr_Format(PyExc_AttributeError, "function '%U' is a library's, which may not be modified in this session",
                     ((PyFunctionObject *)function)->func_qualname);
        return -1;
    }
    return function_store(function, name, value);
}

static PyObject *store_on_function(PyObject *function, PyObject *args) {
    PyObject *name, *value;
    if (!PyArg_ParseTuple(args, "UO:__setattr__", &name, &value) ||
        guarded_function_store(function, name, value) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *delete_of_function(PyObject *function, PyObject *name) {
    if (!PyUnicode_Check(name)) {
        PyErr_SetString(PyExc_TypeError, "attribute name must be string");
        return NULL;
    }
    if (guarded_function_store(function, name, NULL) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* `object.__setattr__` does not work on a type with a slot of its own: it would pass the slot over. So the type gets
methods of that name. */
static PyMethodDef function_methods[] = {
    {"__setattr__", store_on_function, METH_VARARGS, NULL},
    {"__delattr__", delete_of_function, METH_O, NULL},
};

static PyObject *namespace_of(PyTypeObject *type) {
#if PY_VERSION_HEX >= 0x030c0000
    return PyType_GetDict(type);
#else
    return Py_XNewRef(type->tp_dict);
#endif
}

static int guard_functions(void) {
    PyObject *namespace = namespace_of(&PyFunction_Type);
    int done = namespace == NULL ? -1 : 0;
    for (size_t at = 0; done == 0 && at < 2; at++) {
        PyObject *method = PyDescr_NewMethod(&PyFunction_Type, &function_methods[at]);
        done = method == NULL ? -1 : PyDict_SetItemString(namespace, function_methods[at].ml_name, method);
        Py_XDECREF(method);
    }
    Py_XDECREF(namespace);
    if (done < 0) {
        return -1;
    }
    function_store = PyFunction_Type.tp_setattro;
    PyFunction_Type.tp_setattro = guarded_function_store;
    PyType_Modified(&PyFunction_Type);
    return 0;
}

/* --- methods -------------------------------------------------------------------------------------

A method compiled by Cython does not check its `self` when it is called through the class (`Class.method(other)`). It
reads the memory of any object as if it were one of its own. So each such method gets a function in front of it that
checks the object. Classes written in Python need none: they read attributes by name.
*/

struct method {
    PyTypeObject *owner;
    vectorcallfunc call;
};

static struct table methods; /* functions, and what stands behind them */
static struct table calls;   /* types of functions, and what called their functions in the other way */

static int takes(const struct method *method, PyObject *self) {
    if (self != NULL && PyObject_TypeCheck(self, method->owner)) {
        return 1;
    }
    PyErr_Format(PyExc_TypeError, "a method of '%.100s' objects cannot be called with '%.100s'", method->owner->tp_name,
                 self == NULL ? "nothing" : Py_TYPE(self)->tp_name);
    return 0;
}

static PyObject *checked_vectorcall(PyObject *function, PyObject *const *args, size_t count, PyObject *keywords) {
    const struct method *method = find(&methods, function);
    return takes(method, PyVectorcall_NARGS(count) > 0 ? args[0] : NULL) ? method->call(function, args, count, keywords)
                                                                         : NULL;
}

static PyObject *checked_call(PyObject *function, PyObject *args, PyObject *keywords) {
    const struct method *method = find(&methods, function);
    if (method != NULL && !takes(method, PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : NULL)) {
        return NULL;
    }
    return ((ternaryfunc)find(&calls, Py_TYPE(function)))(function, args, keywords);
}

static int check_method(PyTypeObject *owner, PyObject *function) {
    PyTypeObject *type = Py_TYPE(function);
    if (find(&methods, function) != NULL) {
        return 0;
    }
    struct method *method = PyMem_Malloc(sizeof(struct method));
    if (method == NULL || put(&methods, function, method) < 0) {
        PyMem_Free(method);
        return -1;
    }
    vectorcallfunc *place = (vectorcallfunc *)((char *)function + type->tp_vectorcall_offset);
    *method = (struct method){owner, *place};
    Py_INCREF(function); /* its address must stay its own */
    Py_INCREF(owner);
    if (*place != NULL) {
        *place = checked_vectorcall;
    }
    if (find(&calls, type) == NULL) {
        if (put(&calls, type, (void *)type->tp_call) < 0) {
            return -1;
        }
        type->tp_call = checked_call;
    }
    return 0;
}

static PyObject *check_methods(PyObject *module, PyObject *args) {
    PyTypeObject *owner, *kind, *ordinary;
    if (!may_change() ||
        !PyArg_ParseTuple(args, "O!O!O!", &PyType_Type, &owner, &PyType_Type, &kind, &PyType_Type, &ordinary)) {
        return NULL;
    }
    if (owner->tp_dealloc == ordinary->tp_dealloc || kind->tp_vectorcall_offset <= 0) {
        Py_RETURN_NONE;
    }
#if PY_VERSION_HEX >= 0x030c0000
    PyObject *namespace = PyType_GetDict(owner);
#else
    PyObject *namespace = Py_XNewRef(owner->tp_dict);
#endif
    PyObject *key, *value;
    Py_ssize_t at = 0;
    int done = 0;
    while (done == 0 && namespace != NULL && PyDict_Next(namespace, &at, &key, &value)) {
        done = Py_TYPE(value) == kind ? check_method(owner, value) : 0;
    }
    Py_XDECREF(namespace);
    if (done < 0) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

/* --- audit ---------------------------------------------------------------------------------------*/

enum action { NOTHING, DENY, PROCESSES, NETWORK, OPEN, READ, WRITE, MOVE, TO, LINK, DATABASE, COMPILE, LOAD_CODE };

struct rule {
    const char *event;
    enum action action;
    int descriptor; /* which argument is the folder descriptor that the path is relative to; 0: none */
};

/* Events by their whole name; below, events by their beginning. An event in neither table gives access to nothing. */
static const struct rule EXACT[] = {
    {"open", OPEN, 0},
    {"compile", COMPILE, 0},
    {"marshal.loads", LOAD_CODE, 0},
    {"code.__new__", LOAD_CODE, 0},
    {"sqlite3.connect", DATABASE, 0},
    {"os.listdir", READ, 0},
    {"os.scandir", READ, 0},
    {"os.walk", READ, 0},
    {"os.fwalk", READ, 0},
    {"os.getxattr", READ, 0},
    {"os.listxattr", READ, 0},
    {"os.chdir", READ, 0},
    {"os.fchdir", READ, 0},
    {"os.mkdir", WRITE, 2},
    {"os.remove", WRITE, 1},
    {"os.rmdir", WRITE, 1},
    {"os.truncate", WRITE, 0},
    {"os.utime", WRITE, 3},
    {"os.chmod", WRITE, 2},
    {"os.chown", WRITE, 3},
    {"os.setxattr", WRITE, 0},
    {"os.mkfifo", WRITE, 0},
    {"os.mknod", WRITE, 0},
    {"shutil.rmtree", WRITE, 0},
    {"shutil.make_archive", WRITE, 0},
    {"tempfile.mkstemp", WRITE, 0},
    {"tempfile.mkdtemp", WRITE, 0},
    {"os.rename", MOVE, 0},
    {"shutil.move", MOVE, 0},
    {"shutil.copyfile", TO, 0},
    {"shutil.copymode", TO, 0},
    {"shutil.copystat", TO, 0},
    {"shutil.copytree", TO, 0},
    {"os.link", LINK, 0},
    {"os.symlink", LINK, 0},
};

/* These reach the interpreter itself, other processes, or the network. */
static const struct rule BEGINNING[] = {
    {"os.kill", DENY, 0},
    {"os.putenv", DENY, 0},
    {"os.unsetenv", DENY, 0},
    {"os.removexattr", DENY, 0},
    {"os.chflags", DENY, 0},
    {"os.lockf", DENY, 0},
    {"os.add_dll", DENY, 0},
    {"os.system", PROCESSES, 0},
    {"os.exec", PROCESSES, 0},
    {"os.fork", PROCESSES, 0},
    {"os.posix_spawn", PROCESSES, 0},
    {"os.spawn", PROCESSES, 0},
    {"os.startfile", PROCESSES, 0},
    {"subprocess.", PROCESSES, 0},
    {"pty.", PROCESSES, 0},
    {"socket.", NETWORK, 0},
    {"urllib.Request", NETWORK, 0},
    {"http.client", NETWORK, 0},
    {"ftplib.", NETWORK, 0},
    {"smtplib.", NETWORK, 0},
    {"poplib.", NETWORK, 0},
    {"imaplib.", NETWORK, 0},
    {"nntplib.", NETWORK, 0},
    {"telnetlib.", NETWORK, 0},
    {"ctypes.get_errno", NOTHING, 0},
    {"ctypes.", DENY, 0},
    {"sys.settrace", DENY, 0},
    {"sys.setprofile", DENY, 0},
    {"sys.addaudithook", DENY, 0},
    {"sys._current_", DENY, 0},
    {"sys.monitoring", DENY, 0},
    {"gc.get_", DENY, 0},
    {"marshal.load", DENY, 0},
    {"pickle.find_class", DENY, 0},
    {"function.__new__", DENY, 0},
    {"cpython.run", DENY, 0},
    {"cpython.remote_debugger", DENY, 0},
    {"signal.", DENY, 0},
    {"fcntl.", DENY, 0},
    {"resource.", DENY, 0},
    {"syslog.", DENY, 0},
    {"webbrowser.", DENY, 0},
    {"sqlite3.enable_load", DENY, 0},
    {"sqlite3.load", DENY, 0},
    {"builtins.breakpoint", DENY, 0},
    {"ensurepip.", DENY, 0},
    {"setopencodehook", DENY, 0},
    {"shutil.chown", DENY, 0},
    {"shutil.unpack", DENY, 0},
    {"code.interact", DENY, 0},
    {"pdb.", DENY, 0},
    {"remote_debugger", DENY, 0},
};

static struct {
    char **read, **write, **system; /* real paths, ended by NULL */
    int network, processes, links;
    PyObject *refused;      /* class of the error; takes a message */
    PyObject *path_refused; /* makes the error for a path: (text, writing) */
    PyObject *paths;        /* tuple of the exact types of pathlib */
    PyObject *neutral;      /* whether a text means the same with and without the guards */
} rules;

static int always, watching, hooked;
static unsigned long collector;
static unsigned long long refusals;

static const struct rule *rule_for(const char *event) {
    for (size_t at = 0; at < sizeof(EXACT) / sizeof(EXACT[0]); at++) {
        if (event[0] == EXACT[at].event[0] && strcmp(event, EXACT[at].event) == 0) {
            return &EXACT[at];
        }
    }
    for (size_t at = 0; at < sizeof(BEGINNING) / sizeof(BEGINNING[0]); at++) {
        const char *beginning = BEGINNING[at].event;
        if (event[0] == beginning[0] && strncmp(event, beginning, strlen(beginning)) == 0) {
            return &BEGINNING[at];
        }
    }
    return NULL;
}

/* Whether the running code is the session's, or a library's on its behalf.

The nearest frame that is either the session's or trusted decides. Where there is neither, nobody called: it is a
finaliser, a callback or a thread. In a kernel such code counts as the session's. So does everything that runs while the
collector works, because it runs finalisers on top of whatever frame happened to allocate, even a trusted one. */
static int armed(void) {
    return works_for_session(0, watches_nobody());
}

/* Whether code without a caller counts as the session's: in a kernel always, elsewhere only while a cell runs. */
static int watches_nobody(void) {
    return always || watching > 0;
}

/* `armed` with choices: code with one of the marks `others` counts as trusted, and `nobody` is the answer where no
frame decides. */
static int works_for_session(intptr_t others, int nobody) {
    if (collector != 0 && collector == PyThread_get_thread_ident()) {
        return 1;
    }
    int decided = -1;
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame != NULL && decided < 0) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        PyObject *builtins = PyFrame_GetBuiltins(frame);
        if (mark_of(code) & (TRUSTED | others)) {
            decided = 0;
        } else if (is_session(builtins)) {
            decided = 1;
        }
        Py_DECREF(code);
        Py_DECREF(builtins);
        Py_SETREF(frame, PyFrame_GetBack(frame));
    }
    Py_XDECREF(frame);
    return decided >= 0 ? decided : nobody;
}

static int within(const char *path, char *const *roots) {
    for (; *roots != NULL; roots++) {
        size_t length = strlen(*roots);
        if (strncmp(path, *roots, length) == 0 &&
            (path[length] == '\0' || path[length] == '/' || (*roots)[length - 1] == '/')) {
            return 1;
        }
    }
    return 0;
}

/* The path with its symbolic links followed. A last part that does not exist yet is appended as it is. -1 if the path
cannot be resolved. Between this check and the call, a thread could swap a link; Landlock, which decides on the opened
file itself, holds there. */
static int resolve(const char *path, char *real) {
    char head[PATH_MAX];
    if (strlen(path) >= sizeof(head)) {
        return -1;
    }
    strcpy(head, path);
    const char *tail = "";
    for (;;) {
        if (realpath(head[0] == '\0' ? "." : head, real) != NULL) {
            break;
        }
        if (head[0] == '\0' || (errno != ENOENT && errno != ENOTDIR && errno != EACCES)) {
            return -1;
        }
        char *slash = strrchr(head, '/');
        const char *name = slash == NULL ? head : slash + 1;
        if (strcmp(name, "..") == 0) {
            return -1; /* of a folder that is not there */
        }
        tail = path + (name - head);
        if (slash == head) {
            head[1] = '\0';
            if (name[0] == '\0') {
                return -1;
            }
        } else if (slash == NULL) {
            head[0] = '\0';
        } else {
            *slash = '\0';
        }
    }
    if (tail[0] == '\0') {
        return 0;
    }
    for (const char *part = tail; part != NULL; part = strchr(part, '/'), part = part == NULL ? NULL : part + 1) {
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) {
            return -1;
        }
    }
    size_t length = strlen(real);
    if (length + 1 + strlen(tail) >= PATH_MAX) {
        return -1;
    }
    snprintf(real + length, PATH_MAX - length, "%s%s", real[length - 1] == '/' ? "" : "/", tail);
    return 0;
}

static int refuse_text(const char *format, const char *event) {
    PyObject *message = PyUnicode_FromFormat(format, event);
    PyObject *error = message == NULL ? NULL : PyObject_CallOneArg(rules.refused, message);
    Py_XDECREF(message);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return -1;
}

static int refuse_path(const char *path, int writing) {
    PyObject *text = PyUnicode_DecodeFSDefault(path);
    PyObject *error =
        text == NULL ? NULL : PyObject_CallFunctionObjArgs(rules.path_refused, text, writing ? Py_True : Py_False, NULL);
    Py_XDECREF(text);
    if (error != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return -1;
}

/* The bytes of a path, as the system will get them. No method of the object is called: a `__fspath__` could name one
file here and another one there. NULL without an error means an object whose path cannot be found out in this way. */
static PyObject *bytes_of(PyObject *path) {
    if (path == Py_None) {
        return PyBytes_FromString(".");
    }
    if (PyUnicode_Check(path)) {
        return PyUnicode_EncodeFSDefault(path);
    }
    if (PyBytes_Check(path)) {
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(path), PyBytes_GET_SIZE(path));
    }
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(rules.paths); at++) {
        if ((PyObject *)Py_TYPE(path) == PyTuple_GET_ITEM(rules.paths, at)) {
            PyObject *text = PyOS_FSPath(path);
            PyObject *bytes = text != NULL && PyUnicode_CheckExact(text) ? PyUnicode_EncodeFSDefault(text) : NULL;
            Py_XDECREF(text);
            return bytes;
        }
    }
    return NULL;
}

static int check_path(PyObject *path, PyObject *folder, int writing) {
    if (PyLong_Check(path)) {
        return 0; /* an open file: its path was checked when it was opened */
    }
    PyObject *bytes = bytes_of(path);
    if (bytes == NULL) {
        return PyErr_Occurred()
                   ? -1
                   : refuse_text("this function takes the path as text in this session: pass str(path)", NULL);
    }
    char full[PATH_MAX], real[PATH_MAX];
    const char *text = PyBytes_AS_STRING(bytes);
    int decided = -1;
    if (strlen(text) != (size_t)PyBytes_GET_SIZE(bytes)) {
        decided = 0; /* it has a NUL: the system takes no such path */
    } else if (writing && strcmp(text, "/dev/null") == 0) {
        decided = 0;
    } else {
        if (folder != NULL && PyLong_Check(folder) && text[0] != '/') {
            long descriptor = PyLong_AsLong(folder);
            PyErr_Clear();
            if (descriptor >= 0) {
                char link[64];
                snprintf(link, sizeof(link), "/proc/self/fd/%ld", descriptor);
                ssize_t length = readlink(link, full, sizeof(full) - 1);
                size_t rest = strlen(text);
                if (length > 0 && (size_t)length + 1 + rest < sizeof(full)) {
                    full[length] = '/';
                    strcpy(full + length + 1, text);
                    text = full;
                }
            }
        }
        if (resolve(text, real) == 0 &&
            (within(real, writing ? rules.write : rules.read) || (!writing && within(real, rules.system)))) {
            decided = 0;
        }
    }
    if (decided < 0) {
        refuse_path(text, writing);
    }
    Py_DECREF(bytes);
    return decided;
}

enum need { FOUND, KEPT, MADE }; /* a file is only looked for; written with what it holds; made or emptied */
static PyObject *overlay_of(PyObject *path, enum need need);

/* Whether a path may be written to. `shutil` raises its event before the overlay has changed the path, `os` after. */
static int check_written(const char *event, PyObject *path, PyObject *folder, enum need need) {
    if (strncmp(event, "shutil.", 7) != 0) {
        return check_path(path, folder, 1);
    }
    PyObject *used = overlay_of(path, need);
    int decided = used == NULL ? -1 : check_path(used, NULL, 1);
    Py_XDECREF(used);
    return decided;
}

/* Whether a call of `open` reads a file that every program may read. C code makes such calls (zoneinfo reads time
zones) and has no frame of its own, so the call seems to come from the session. */
static int reads_system(PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    char real[PATH_MAX];
    if (!in_force || count < 1 || count > 2 || keywords != NULL || !PyUnicode_CheckExact(args[0])) {
        return 0;
    }
    const char *path = PyUnicode_AsUTF8(args[0]), *mode = "r";
    if (count == 2) {
        mode = PyUnicode_CheckExact(args[1]) ? PyUnicode_AsUTF8(args[1]) : NULL;
    }
    if (path == NULL || mode == NULL) {
        PyErr_Clear();
        return 0;
    }
    return strpbrk(mode, "wax+") == NULL && resolve(path, real) == 0 && within(real, rules.system);
}

static PyObject *argument(PyObject *args, Py_ssize_t at) {
    return at < PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, at) : NULL;
}

/* The descriptor of the folder that `os.open` is called with in this thread; NULL for none. Its event lacks it. */
static _Thread_local PyObject *opened_below;

static int check_open(PyObject *args) {
    PyObject *path = argument(args, 0), *mode = argument(args, 1), *flags = argument(args, 2);
    int writing = 1;
    if (mode != NULL && PyUnicode_Check(mode)) {
        const char *letters = PyUnicode_AsUTF8(mode);
        if (letters == NULL) {
            return -1;
        }
        writing = strpbrk(letters, "wax+") != NULL;
    } else if (flags != NULL && PyLong_Check(flags)) {
        long bits = PyLong_AsLong(flags);
        PyErr_Clear();
        writing = (bits & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0;
    }
    return path == NULL ? 0 : check_path(path, mode == Py_None ? opened_below : NULL, writing);
}

/* Whether a compilation needs no check, whoever it is for. */
static int may_compile(PyObject *args) {
    PyObject *source = argument(args, 0);
    if (source == NULL || !(PyUnicode_Check(source) || PyBytes_Check(source))) {
        return 1; /* a tree: the session has none that a compiler takes */
    }
    return (mark_of_caller() & (GENERATOR | IMPORTER)) != 0;
}

/* Text that a library compiles for a session gets no guards, so it must mean the same with and without them. Else a
library that evaluates a string (`eval` in a formula, a template) would run what the session's own compiler refuses. */
static int check_compile(PyObject *args) {
    PyObject *source = argument(args, 0);
    PyObject *text = PyUnicode_Check(source)
                         ? PyUnicode_FromObject(source)
                         : PyUnicode_DecodeUTF8(PyBytes_AS_STRING(source), PyBytes_GET_SIZE(source), "surrogateescape");
    PyObject *neutral = text == NULL ? NULL : PyObject_CallOneArg(rules.neutral, text);
    Py_XDECREF(text);
    if (neutral == NULL) {
        return -1;
    }
    Py_DECREF(neutral);
    return neutral == Py_True
               ? 0
               : refuse_text("a library tried to compile text that the policy does not allow: write it as code", NULL);
}

static int check(const struct rule *rule, const char *event, PyObject *args) {
    static const char UNAVAILABLE[] = "%s is not available in this session: its policy does not allow it";
    PyObject *first = argument(args, 0), *second = argument(args, 1);
    if (first == NULL && rule->action >= OPEN && rule->action <= DATABASE) {
        return 0;
    }
    switch (rule->action) {
    case NOTHING:
        return 0;
    case PROCESSES:
        return rules.processes ? 0 : refuse_text(UNAVAILABLE, event);
    case NETWORK:
        return rules.network ? 0 : refuse_text(UNAVAILABLE, event);
    case OPEN:
        return check_open(args);
    case READ:
        return check_path(first, NULL, 0);
    case WRITE:
        return check_written(event, first, rule->descriptor ? argument(args, rule->descriptor) : NULL, FOUND);
    case MOVE:
        return check_written(event, first, argument(args, 2), FOUND) < 0 || second == NULL
                   ? -1
                   : check_written(event, second, argument(args, 3), MADE);
    case TO:
        return second == NULL ? 0 : check_written(event, second, NULL, MADE);
    case LINK:
        if (!rules.links) {
            return refuse_text("%s: links are not available in this session: copy the file", event);
        }
        return check_path(first, NULL, 1) < 0 || second == NULL ? -1 : check_path(second, NULL, 1);
    case DATABASE:
        if (PyUnicode_Check(first) && (PyUnicode_GetLength(first) == 0 ||
                                       PyUnicode_CompareWithASCIIString(first, ":memory:") == 0)) {
            return 0;
        }
        return check_path(first, NULL, 1);
    case COMPILE:
        return check_compile(args);
    case LOAD_CODE:
        if (mark_of_caller() & IMPORTER) {
            return 0; /* a library that imports one of its own compiled files */
        }
        break;
    case DENY:
        break;
    }
    return refuse_text(UNAVAILABLE, event);
}

static int hook(const char *event, PyObject *args, void *unused) {
    if (!in_force || !Py_IsInitialized()) {
        return 0;
    }
    const struct rule *rule = rule_for(event);
    if (rule == NULL || rule->action == NOTHING || (rule->action == COMPILE && may_compile(args)) || !armed()) {
        return 0; /* `armed` looks at every frame, and costs as much as the compilation of a short cell */
    }
    if (check(rule, event, args) < 0) {
        refusals++;
        return -1;
    }
    return 0;
}

static PyObject *collecting(PyObject *module, PyObject *args) {
    PyObject *phase = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : NULL;
    int starts = phase != NULL && PyUnicode_CheckExact(phase) &&
                 PyUnicode_CompareWithASCIIString(phase, "start") == 0;
    collector = starts ? PyThread_get_thread_ident() : 0;
    Py_RETURN_NONE;
}

static void free_roots(char **roots) {
    for (char **root = roots; root != NULL && *root != NULL; root++) {
        PyMem_Free(*root);
    }
    PyMem_Free(roots);
}

static char **roots_of(PyObject *tuple) {
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    char **roots = PyMem_Calloc((size_t)count + 1, sizeof(char *));
    for (Py_ssize_t at = 0; roots != NULL && at < count; at++) {
        const char *text = PyBytes_AsString(PyTuple_GET_ITEM(tuple, at));
        size_t size = text == NULL ? 0 : strlen(text) + 1;
        roots[at] = size < 2 ? NULL : PyMem_Malloc(size);
        if (roots[at] == NULL) {
            free_roots(roots);
            return NULL;
        }
        memcpy(roots[at], text, size);
    }
    return roots;
}

static PyObject *enforce(PyObject *module, PyObject *args) {
    PyObject *read, *write, *system, *refused, *path_refused, *paths, *neutral;
    int network, processes, links;
    if (!may_change() ||
        !PyArg_ParseTuple(args, "O!O!O!pppOOO!O", &PyTuple_Type, &read, &PyTuple_Type, &write, &PyTuple_Type, &system,
                          &network, &processes, &links, &refused, &path_refused, &PyTuple_Type, &paths, &neutral)) {
        return NULL;
    }
    char **readable = roots_of(read), **writable = roots_of(write), **known = roots_of(system);
    if (readable == NULL || writable == NULL || known == NULL) {
        free_roots(readable);
        free_roots(writable);
        free_roots(known);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    free_roots(rules.read);
    free_roots(rules.write);
    free_roots(rules.system);
    rules.read = readable, rules.write = writable, rules.system = known;
    rules.network = network, rules.processes = processes, rules.links = links;
    Py_XSETREF(rules.refused, Py_NewRef(refused));
    Py_XSETREF(rules.path_refused, Py_NewRef(path_refused));
    Py_XSETREF(rules.paths, Py_NewRef(paths));
    Py_XSETREF(rules.neutral, Py_NewRef(neutral));
    in_force = 1;
    Py_RETURN_NONE;
}

static PyObject *watch(PyObject *module, PyObject *change) {
    long by = PyLong_AsLong(change);
    if (!may_change() || (by == -1 && PyErr_Occurred())) {
        return NULL;
    }
    watching += (int)by;
    Py_RETURN_NONE;
}

static PyObject *arm(PyObject *module, PyObject *unused) {
    always = 1; /* without asking who calls: to arm the hook gains nobody anything */
    Py_RETURN_NONE;
}

static PyObject *lift(PyObject *module, PyObject *unused) {
    if (!may_change()) {
        return NULL;
    }
    in_force = 0;
    Py_RETURN_NONE;
}

static PyObject *is_armed(PyObject *module, PyObject *unused) {
    return PyBool_FromLong(armed());
}

static PyObject *refused_events(PyObject *module, PyObject *unused) {
    return PyLong_FromUnsignedLongLong(refusals);
}

/* --- overlay -------------------------------------------------------------------------------------

Code works in a folder that it may read but not write (`lower`), and has another folder of its own (`upper`). A file
that it names in the lower one is looked for in the upper one first, and a file that it makes by a relative path is
made there. Only the name changes here, to one that the code could have written itself: every check comes afterwards
and sees the new name. So a mistake here can confuse files of one session, but gives no access.
*/

static char *lower, *upper; /* real paths; NULL: there is none */

static int is_folder(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static int is_there(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0;
}

/* The part of a path below the lower folder, without empty parts and `.`; -1 if the path is not in it. */
static int below_lower(const char *path, char *rest) {
    char full[PATH_MAX], *const roots[] = {lower, NULL};
    size_t size = 0;
    if (path[0] != '/') {
        if (getcwd(full, sizeof(full)) == NULL) {
            return -1;
        }
        size = strlen(full);
        full[size++] = '/';
    }
    if (size + strlen(path) >= sizeof(full)) {
        return -1;
    }
    strcpy(full + size, path);
    if (!within(full, roots)) {
        return -1;
    }
    char *end = rest, *left = NULL;
    for (char *part = strtok_r(full + strlen(lower), "/", &left); part != NULL; part = strtok_r(NULL, "/", &left)) {
        if (strcmp(part, "..") == 0) {
            return -1; /* of a folder that may be a link */
        }
        if (strcmp(part, ".") != 0) {
            *end++ = '/';
            end = stpcpy(end, part);
        }
    }
    *end = '\0';
    return 0;
}

/* Make the folders above `rest` in the upper folder, as far as they exist in the lower one. */
static void make_folders(const char *rest) {
    char high[PATH_MAX], low[PATH_MAX];
    for (const char *slash = strchr(rest + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        int size = (int)(slash - rest);
        snprintf(high, sizeof(high), "%s%.*s", upper, size, rest);
        snprintf(low, sizeof(low), "%s%.*s", lower, size, rest);
        if (!is_there(high) && (!is_folder(low) || mkdir(high, 0700) < 0)) {
            return;
        }
    }
}

/* Whether the path means a file in the upper folder, whose path is then written to `found`. */
static int overlaid(const char *path, enum need need, char *found) {
    char rest[PATH_MAX], low[PATH_MAX], real[PATH_MAX];
    if (lower == NULL || !in_force || below_lower(path, rest) < 0 || rest[0] == '\0' ||
        strlen(upper) + strlen(rest) >= PATH_MAX || strlen(lower) + strlen(rest) >= PATH_MAX || !armed()) {
        return 0;
    }
    strcat(strcpy(found, upper), rest);
    strcat(strcpy(low, lower), rest);
    if (is_there(found)) {
        return !is_folder(found) || !is_folder(low);
    }
    if (need == FOUND || path[0] == '/' || (need == KEPT && is_there(low)) || resolve(found, real) < 0 ||
        !within(real, rules.write)) {
        return 0;
    }
    make_folders(rest);
    return 1;
}

/* The path to use, as a new reference. An object that is not a path, or whose path cannot be found out, is unchanged.
*/
static PyObject *overlay_of(PyObject *path, enum need need) {
    char found[PATH_MAX];
    if (lower == NULL || path == Py_None || PyLong_Check(path)) {
        return Py_NewRef(path);
    }
    PyObject *bytes = bytes_of(path);
    if (bytes == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(path);
    }
    const char *text = PyBytes_AS_STRING(bytes);
    int moved = strlen(text) == (size_t)PyBytes_GET_SIZE(bytes) && overlaid(text, need, found);
    Py_DECREF(bytes);
    if (!moved) {
        return Py_NewRef(path);
    }
    return PyBytes_Check(path) ? PyBytes_FromString(found) : PyUnicode_DecodeFSDefault(found);
}

static enum need need_of_mode(PyObject *mode) {
    const char *letters = mode != NULL && PyUnicode_Check(mode) ? PyUnicode_AsUTF8(mode) : "r";
    PyErr_Clear();
    if (letters == NULL) {
        return FOUND;
    }
    return strchr(letters, 'w') != NULL ? MADE : strpbrk(letters, "ax+") != NULL ? KEPT : FOUND;
}

static enum need need_of_flags(PyObject *flags) {
    long bits = flags != NULL && PyLong_Check(flags) ? PyLong_AsLong(flags) : 0;
    PyErr_Clear();
    if ((bits & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) == 0) {
        return FOUND;
    }
    return bits & O_TRUNC && !(bits & O_EXCL) ? MADE : KEPT;
}

/* The folder in the upper one that corresponds to a path in the lower one. */
static int beside(PyObject *path, char *found) {
    char rest[PATH_MAX];
    PyObject *bytes = path == NULL ? PyBytes_FromString(".") : PyLong_Check(path) ? NULL : bytes_of(path);
    int is = bytes != NULL && strlen(PyBytes_AS_STRING(bytes)) == (size_t)PyBytes_GET_SIZE(bytes) &&
             below_lower(PyBytes_AS_STRING(bytes), rest) >= 0 && strlen(upper) + strlen(rest) < PATH_MAX;
    Py_XDECREF(bytes);
    PyErr_Clear();
    return is && is_folder(strcat(strcpy(found, upper), rest)) && in_force && armed();
}

/* An entry of the upper folder, with the path by which code looked for it. In all else it is an `os.DirEntry`. */
typedef struct {
    PyObject_HEAD
    PyObject *entry, *path;
} Entry;

static void entry_dealloc(PyObject *self) {
    Py_XDECREF(((Entry *)self)->entry);
    Py_XDECREF(((Entry *)self)->path);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *entry_getattr(PyObject *self, PyObject *name) {
    Entry *entry = (Entry *)self;
    if (PyUnicode_CompareWithASCIIString(name, "path") == 0) {
        return Py_NewRef(entry->path);
    }
    int is_public = PyUnicode_GetLength(name) > 0 && PyUnicode_ReadChar(name, 0) != '_';
    return is_public ? PyObject_GetAttr(entry->entry, name) : PyObject_GenericGetAttr(self, name);
}

static PyObject *entry_repr(PyObject *self) {
    return PyObject_Repr(((Entry *)self)->entry);
}

static PyObject *entry_fspath(PyObject *self, PyObject *unused) {
    return Py_NewRef(((Entry *)self)->path);
}

static PyMethodDef entry_methods[] = {
    {"__fspath__", entry_fspath, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rlm_sandbox.language_wall._core.Entry",
    .tp_basicsize = sizeof(Entry),
    .tp_dealloc = entry_dealloc,
    .tp_repr = entry_repr,
    .tp_getattro = entry_getattr,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_methods = entry_methods,
};

/* The entry with its path below `base`, the text or bytes that were looked for. */
static PyObject *entry_below(PyObject *entry, PyObject *name, PyObject *base) {
    Entry *made = PyObject_New(Entry, &Entry_Type);
    if (made == NULL) {
        return NULL;
    }
    made->entry = Py_NewRef(entry);
    if (PyBytes_Check(base)) {
        const char *text = PyBytes_AS_STRING(base);
        Py_ssize_t size = PyBytes_GET_SIZE(base);
        const char *slash = size > 0 && text[size - 1] == '/' ? "" : "/";
        made->path = PyBytes_FromFormat("%s%s%s", text, slash, PyBytes_AsString(name));
    } else {
        Py_ssize_t size = PyUnicode_GetLength(base);
        const char *slash = size > 0 && PyUnicode_ReadChar(base, size - 1) == '/' ? "" : "/";
        made->path = PyUnicode_FromFormat("%U%s%U", base, slash, name);
    }
    if (made->path == NULL) {
        Py_CLEAR(made);
    }
    return (PyObject *)made;
}

/* What `os.scandir` gives for two folders: an iterator that can be closed. */
typedef struct {
    PyObject_HEAD
    PyObject *entries; /* a list, from which the next one is taken at `at` */
    Py_ssize_t at;
} Entries;

static void entries_dealloc(PyObject *self) {
    Py_XDECREF(((Entries *)self)->entries);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *entries_next(PyObject *self) {
    Entries *them = (Entries *)self;
    return them->at < PyList_GET_SIZE(them->entries) ? Py_NewRef(PyList_GET_ITEM(them->entries, them->at++)) : NULL;
}

static PyObject *entries_close(PyObject *self, PyObject *unused) {
    ((Entries *)self)->at = PyList_GET_SIZE(((Entries *)self)->entries);
    Py_RETURN_NONE;
}

static PyObject *entries_enter(PyObject *self, PyObject *unused) {
    return Py_NewRef(self);
}

static PyMethodDef entries_methods[] = {
    {"close", entries_close, METH_NOARGS, "End the iteration."},
    {"__enter__", entries_enter, METH_NOARGS, NULL},
    {"__exit__", entries_close, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject Entries_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rlm_sandbox.language_wall._core.Entries",
    .tp_basicsize = sizeof(Entries),
    .tp_dealloc = entries_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .tp_iter = PyObject_SelfIter,
    .tp_iternext = entries_next,
    .tp_methods = entries_methods,
};

/* Put what is in a folder into a list, but for names that were there before; entries below `base`, if it is given. */
static int gather(PyObject *found, PyObject *into, PyObject *names, PyObject *base) {
    PyObject *iterator = found == NULL ? NULL : PyObject_GetIter(found), *entry;
    while (iterator != NULL && (entry = PyIter_Next(iterator)) != NULL) {
        int is_name = PyUnicode_Check(entry) || PyBytes_Check(entry);
        PyObject *name = is_name ? Py_NewRef(entry) : PyObject_GetAttrString(entry, "name");
        int known = name == NULL ? -1 : PySet_Contains(names, name);
        if (known == 0) {
            PyObject *shown = is_name || base == NULL ? Py_NewRef(entry) : entry_below(entry, name, base);
            known = shown == NULL || PySet_Add(names, name) < 0 || PyList_Append(into, shown) < 0 ? -1 : 0;
            Py_XDECREF(shown);
        }
        Py_XDECREF(name);
        Py_DECREF(entry);
        if (known < 0) {
            break;
        }
    }
    Py_XDECREF(iterator);
    return PyErr_Occurred() ? -1 : 0;
}

/* The entries of the upper folder, and of the lower one if there is one. An entry of the upper folder hides one of the
same name in the lower folder. */
static PyObject *merged(PyObject *above, PyObject *below, PyObject *base, int is_list) {
    PyObject *list = PyList_New(0), *names = PySet_New(NULL), *result = NULL;
    if (list != NULL && names != NULL && gather(above, list, names, base) == 0 &&
        (below == NULL || gather(below, list, names, NULL) == 0)) {
        Entries *entries = is_list ? NULL : PyObject_New(Entries, &Entries_Type);
        if (entries != NULL) {
            entries->entries = Py_NewRef(list);
            entries->at = 0;
        }
        result = is_list ? Py_NewRef(list) : (PyObject *)entries;
    }
    Py_XDECREF(list);
    Py_XDECREF(names);
    return result;
}

/* Functions that take paths, by their names in `posix`, and what they need of the first and the second path. */
static const struct {
    const char *name;
    enum need first, second;
    int paths;
} PLACED[] = {
    {"open", FOUND, FOUND, 1},     {"stat", FOUND, FOUND, 1},    {"lstat", FOUND, FOUND, 1},
    {"access", FOUND, FOUND, 1},   {"listdir", FOUND, FOUND, 1}, {"scandir", FOUND, FOUND, 1},
    {"readlink", FOUND, FOUND, 1}, {"remove", FOUND, FOUND, 1},  {"unlink", FOUND, FOUND, 1},
    {"rmdir", FOUND, FOUND, 1},    {"chmod", FOUND, FOUND, 1},   {"utime", FOUND, FOUND, 1},
    {"truncate", FOUND, FOUND, 1}, {"mkdir", KEPT, FOUND, 1},    {"rename", FOUND, MADE, 2},
    {"replace", FOUND, MADE, 2},
};
enum { PLACED_COUNT = sizeof(PLACED) / sizeof(PLACED[0]), MOST_ARGUMENTS = 16 };
enum { POSIX_OPEN = 0, LISTDIR = 4, SCANDIR = 5, BUILTIN_OPEN = PLACED_COUNT };

static PyCFunction unplaced[PLACED_COUNT + 1];
static PyMethodDef placed[PLACED_COUNT];

/* The place of an argument that may be given by its position or by one of two names; -1: it is not given. */
static Py_ssize_t argument_at(Py_ssize_t position, const char *name, const char *other, Py_ssize_t count, PyObject *names) {
    if (position < count) {
        return position;
    }
    for (Py_ssize_t at = 0; names != NULL && at < PyTuple_GET_SIZE(names); at++) {
        PyObject *given = PyTuple_GET_ITEM(names, at);
        if (PyUnicode_CompareWithASCIIString(given, name) == 0 || PyUnicode_CompareWithASCIIString(given, other) == 0) {
            return count + at;
        }
    }
    return -1;
}

/* Whether a path is relative to an open folder, which was found before. */
static int from_descriptor(PyObject *const *args, Py_ssize_t count, PyObject *names) {
    static const char *const NAMES[] = {"dir_fd", "src_dir_fd", "dst_dir_fd"};
    for (size_t at = 0; at < 3; at++) {
        Py_ssize_t where = argument_at(PY_SSIZE_T_MAX, NAMES[at], NAMES[at], count, names);
        if (where >= 0 && args[where] != Py_None) {
            return 1;
        }
    }
    return 0;
}

/* The listing of a folder, merged with that of its upper folder. `asked` is the path of the call (NULL: none), and
`used` the path that this means. */
static PyObject *with_upper(int which, PyObject *self, PyObject *result, PyObject *asked, PyObject *used) {
    char found[PATH_MAX];
    int moved = used != asked;
    if (!moved && !beside(used == Py_None ? NULL : used, found)) {
        return result;
    }
    PyObject *base = asked == NULL || asked == Py_None ? PyUnicode_FromString(".") : PyOS_FSPath(asked), *both = NULL;
    if (base != NULL && moved) {
        both = which == LISTDIR ? Py_NewRef(result) : merged(result, NULL, base, 0);
    } else if (base != NULL) {
        PyObject *other = PyBytes_Check(base) ? PyBytes_FromString(found) : PyUnicode_DecodeFSDefault(found);
        PyObject *more = other == NULL ? NULL : ((FastWithKeywords)(void *)unplaced[which])(self, &other, 1, NULL);
        both = more == NULL ? NULL : merged(more, result, base, which == LISTDIR);
        Py_XDECREF(other);
        Py_XDECREF(more);
    }
    Py_XDECREF(base);
    Py_DECREF(result);
    return both;
}

/* Call `os.open`, and let the hook know what the path is relative to. */
static PyObject *open_below(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    Py_ssize_t at = argument_at(PY_SSIZE_T_MAX, "dir_fd", "dir_fd", count, names);
    PyObject *before = opened_below, *folder = at < 0 || args[at] == Py_None ? NULL : args[at];
    if (folder != NULL && !PyLong_Check(folder)) {
        PyErr_SetString(PyExc_TypeError, "dir_fd must be an integer or None"); /* it could name two folders */
        return NULL;
    }
    opened_below = folder;
    PyObject *result = ((FastWithKeywords)(void *)unplaced[POSIX_OPEN])(self, args, count, names);
    opened_below = before;
    return result;
}

static PyObject *call_placed(int which, PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    FastWithKeywords call = which == POSIX_OPEN ? open_below : (FastWithKeywords)(void *)unplaced[which];
    Py_ssize_t total = count + (names == NULL ? 0 : PyTuple_GET_SIZE(names));
    if (lower == NULL || total > MOST_ARGUMENTS || from_descriptor(args, count, names)) {
        return call(self, args, count, names);
    }
    PyObject *given[MOST_ARGUMENTS], *own[2] = {NULL, NULL}, *result = NULL;
    memcpy(given, args, (size_t)total * sizeof(PyObject *));
    enum need needs[2] = {FOUND, FOUND};
    int paths = 1;
    if (which == POSIX_OPEN || which == BUILTIN_OPEN) {
        Py_ssize_t how = argument_at(1, which == POSIX_OPEN ? "flags" : "mode", "", count, names);
        PyObject *value = how < 0 ? NULL : args[how];
        needs[0] = which == POSIX_OPEN ? need_of_flags(value) : need_of_mode(value);
    } else {
        needs[0] = PLACED[which].first, needs[1] = PLACED[which].second, paths = PLACED[which].paths;
    }
    int failed = 0;
    for (int path = 0; path < paths && !failed; path++) {
        const char *name = path == 1 ? "dst" : which == BUILTIN_OPEN ? "file" : "path";
        Py_ssize_t at = argument_at(path, name, path == 0 ? "src" : name, count, names);
        if (at >= 0) {
            own[path] = overlay_of(args[at], needs[path]);
            failed = own[path] == NULL;
            given[at] = own[path];
        }
    }
    if (!failed) {
        result = call(self, given, count, names);
    }
    if (result != NULL && (which == LISTDIR || which == SCANDIR)) {
        Py_ssize_t at = argument_at(0, "path", "path", count, names);
        result = with_upper(which, self, result, at < 0 ? NULL : args[at], own[0]);
    }
    Py_XDECREF(own[0]);
    Py_XDECREF(own[1]);
    return result;
}

#define EACH_PLACED(DO) \
    DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) DO(16)

#define PLACE_OF(N)                                                                                             \
    static PyObject *place_##N(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {      \
        return call_placed(N, self, args, count, names);                                                        \
    }

EACH_PLACED(PLACE_OF)

#define PLACE_ROW(N) (PyCFunction)(void *)place_##N,
static const PyCFunction PLACES[PLACED_COUNT + 1] = {EACH_PLACED(PLACE_ROW)};

/* After `guard_originals`, which calls what is put in place of `open` here. */
static int place_functions(void) {
    PyObject *module = PyImport_ImportModule("posix");
    for (int at = 0; module != NULL && at < PLACED_COUNT; at++) {
        PyObject *function = PyObject_GetAttrString(module, PLACED[at].name);
        int is_function = function != NULL && PyCFunction_CheckExact(function);
        PyMethodDef *method = is_function ? ((PyCFunctionObject *)function)->m_ml : NULL;
        if (method == NULL || (method->ml_flags & (METH_FASTCALL | METH_KEYWORDS)) != (METH_FASTCALL | METH_KEYWORDS)) {
            PyErr_Format(PyExc_SystemError, "the function '%s' is not CPython's", PLACED[at].name);
            Py_XDECREF(function);
            Py_DECREF(module);
            return -1;
        }
        unplaced[at] = method->ml_meth;
        placed[at] = *method;
        placed[at].ml_meth = PLACES[at];
        ((PyCFunctionObject *)function)->m_ml = &placed[at]; /* `posix` and we hold it */
    }
    Py_XDECREF(module);
    unplaced[BUILTIN_OPEN] = original[OPENING];
    original[OPENING] = PLACES[BUILTIN_OPEN];
    return module == NULL ? -1 : 0;
}

static PyObject *overlay(PyObject *module, PyObject *args) {
    const char *below, *above;
    if (!may_change() || !PyArg_ParseTuple(args, "yy", &below, &above)) {
        return NULL;
    }
    free(lower);
    free(upper);
    lower = below[0] == '\0' ? NULL : strdup(below);
    upper = lower == NULL ? NULL : strdup(above);
    if (lower != NULL && upper == NULL) {
        free(lower);
        lower = NULL;
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

static PyObject *overlay_path(PyObject *module, PyObject *args) {
    PyObject *path, *mode;
    return PyArg_ParseTuple(args, "OO", &path, &mode) ? overlay_of(path, need_of_mode(mode)) : NULL;
}

/* --- seal ----------------------------------------------------------------------------------------

What the wall consists of: names in the namespaces of modules and classes, and what functions run. Further names may
come to a namespace of a module; what was there must be what it was.
*/

struct part {
    PyObject *holder, *key, *value; /* a function's part is its code, and has no key */
};

static struct part *parts;
static size_t part_count, part_room;
static size_t noted; /* so many of the parts were noted before the seal */

/* The last known state of a holder whose `count` parts begin at `first`. */
struct extent {
    PyObject *holder;
    PyObject *code;   /* of a function; NULL for a namespace */
    uint64_t version; /* of the namespace when its parts were last found to be what they were; 0 if it has none */
    size_t first, count;
    Py_ssize_t names; /* how many a namespace had, so that one that has come since is not left out of the seal */
};

/* How many holders ahead to prefetch: the check waits for memory longer than it computes. */
enum { AHEAD = 8 };

static struct extent *extents;
static size_t extent_count, extent_room;
static size_t noted_extents;

/* Comparing all parts takes 0.2 ms (0.4 ms after a pause), before each cell. Each time something is stored in a dict,
CPython gives it a new version number, which no dict has had before (PEP 509). */
static uint64_t version_of(PyObject *holder) {
#if PY_VERSION_HEX < 0x030e0000
    if (PyDict_Check(holder)) {
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
        return ((PyDictObject *)holder)->ma_version_tag;
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
    }
#endif
    return 0;
}

static int add_part(PyObject *holder, PyObject *key, PyObject *value) {
    if (part_count == part_room) {
        size_t room = part_room == 0 ? 4096 : 2 * part_room;
        struct part *larger = PyMem_Realloc(parts, room * sizeof(struct part));
        if (larger == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        parts = larger;
        part_room = room;
    }
    parts[part_count++] = (struct part){Py_NewRef(holder), Py_XNewRef(key), Py_NewRef(value)};
    return 0;
}

/* For the parts that were added since `first`. */
static int add_extent(size_t first, Py_ssize_t names) {
    if (extent_count == extent_room) {
        size_t room = extent_room == 0 ? 2048 : 2 * extent_room;
        struct extent *larger = PyMem_Realloc(extents, room * sizeof(struct extent));
        if (larger == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        extents = larger;
        extent_room = room;
    }
    if (part_count > first) {
        struct part *part = &parts[first];
        extents[extent_count++] = (struct extent){
            part->holder, part->key == NULL ? part->value : NULL, 0, first, part_count - first, names};
    }
    return 0;
}

static int seal_namespace(PyObject *namespace) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    size_t first = part_count;
    while (PyDict_Next(namespace, &at, &key, &value)) {
        if (PyUnicode_CheckExact(key) && add_part(namespace, key, value) < 0) {
            return -1;
        }
    }
    return add_extent(first, PyDict_GET_SIZE(namespace));
}

static int seal_class(PyTypeObject *type) {
    PyObject *namespace = namespace_of(type);
    int done = namespace == NULL ? 0 : seal_namespace(namespace);
    Py_XDECREF(namespace);
    return done;
}

static int seal_part(PyObject *part) {
    if (PyDict_Check(part)) {
        return seal_namespace(part);
    }
    if (PyType_Check(part)) {
        return seal_class((PyTypeObject *)part);
    }
    if (PyFunction_Check(part)) {
        size_t first = part_count;
        return add_part(part, NULL, PyFunction_GET_CODE(part)) < 0 ? -1 : add_extent(first, 0);
    }
    PyErr_SetString(PyExc_TypeError, "expected namespaces, classes and functions");
    return -1;
}

static void drop_parts(size_t kept, size_t kept_extents) {
    extent_count = kept_extents;
    while (part_count > kept) {
        struct part part = parts[--part_count];
        Py_DECREF(part.holder);
        Py_XDECREF(part.key);
        Py_DECREF(part.value);
    }
}

static int seal_parts(PyObject *list) {
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(list); at++) {
        if (seal_part(PyList_GET_ITEM(list, at)) < 0) {
            return -1;
        }
    }
    return 0;
}

static int is_list_for_seal(PyObject *list) {
    if (!may_change()) {
        return 0;
    }
    if (!PyList_CheckExact(list)) {
        PyErr_SetString(PyExc_TypeError, "expected a list");
        return 0;
    }
    return 1;
}

/* The name of the first part that is not what it was; NULL if there is none, or with an error. */
static PyObject *first_changed(void) {
    for (size_t at = 0; at < extent_count; at++) {
        struct extent *extent = &extents[at];
        if (at + AHEAD < extent_count) {
            __builtin_prefetch(&extents[at + AHEAD].holder->ob_type + 1);
        }
        if (extent->code != NULL) {
            if (PyFunction_GET_CODE(extent->holder) != extent->code) {
                return ((PyFunctionObject *)extent->holder)->func_qualname;
            }
            continue;
        }
        uint64_t version = version_of(extent->holder);
        if (version != 0 && version == extent->version) {
            continue;
        }
        struct part *first = &parts[extent->first];
        for (struct part *part = first; part < first + extent->count; part++) {
            if (PyDict_GetItemWithError(part->holder, part->key) != part->value) {
                return PyErr_Occurred() ? NULL : part->key;
            }
        }
        extent->version = version;
    }
    return NULL;
}

static int as_noted(void) {
    for (size_t at = 0; at < extent_count; at++) {
        if (extents[at].code == NULL && PyDict_GET_SIZE(extents[at].holder) != extents[at].names) {
            return 0;
        }
    }
    return first_changed() == NULL && !PyErr_Occurred();
}

/* Calling it again takes the place of what was noted and sealed before. */
static PyObject *note(PyObject *module, PyObject *list) {
    if (!is_list_for_seal(list)) {
        return NULL;
    }
    drop_parts(0, 0);
    noted = noted_extents = 0;
    if (seal_parts(list) < 0) {
        return NULL;
    }
    noted = part_count;
    noted_extents = extent_count;
    (void)first_changed(); /* learns the versions here, on pages that all forks share */
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* Taking a reference writes to the object, so the system would copy its page in each fork of the zygote. Parts that the
zygote has noted are only compared here, which writes nothing. */
static PyObject *seal(PyObject *module, PyObject *list) {
    if (!is_list_for_seal(list)) {
        return NULL;
    }
    drop_parts(noted, noted_extents);
    if (!as_noted() || seal_parts(list) < 0) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_False);
    }
    sealed = 1;
    Py_RETURN_TRUE;
}

/* From now on, no code may store on this class, or no code that works for a session on this function. */
static PyObject *freeze(PyObject *module, PyObject *value) {
    if (!may_change()) {
        return NULL;
    }
    if (PyFunction_Check(value)) {
        if (find(&frozen, value) == NULL) {
            if (put(&frozen, value, value) < 0) {
                return NULL;
            }
            Py_INCREF(value); /* its address must stay its own */
        }
    } else if (PyType_Check(value)) {
        ((PyTypeObject *)value)->tp_flags |= Py_TPFLAGS_IMMUTABLETYPE;
        PyType_Modified((PyTypeObject *)value);
    } else {
        PyErr_SetString(PyExc_TypeError, "expected a class or a function");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* The name of the first part that is not what it was, or None. */
static PyObject *changed(PyObject *module, PyObject *unused) {
    PyObject *name = first_changed();
    if (name == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    return Py_NewRef(name);
}

/* --- the module ----------------------------------------------------------------------------------*/

static PyMethodDef METHODS[] = {
    {"add_session", add_session, METH_O, "Frames and functions with these builtins are a session's."},
    {"is_session_frame", session_frame, METH_O, "Whether code of a session runs in the frame."},
    {"is_session_function", session_function, METH_O, "Whether code of a session defined the function."},
    {"mark", mark, METH_VARARGS, "Say what a code object, and all code inside it, is."},
    {"members", members, METH_NOARGS, "An empty set of objects, by identity, that keeps none of them alive."},
    {"texts", texts, METH_NOARGS, "An empty set of exact strings, of which it takes a limited number."},
    {"admit", admit, METH_VARARGS, "Put a value into a set of `members` or `texts`."},
    {"admit_classes", admit_classes, METH_VARARGS,
     "Put a class and those below it into a set of `members`, except those of another set."},
    {"expel", expel, METH_VARARGS, "Take an object out of a set of `members`."},
    {"give_getattr", give_getattr, METH_O, "Give `getattr` what decides about names that are not known."},
    {"give_class_check", give_class_check, METH_VARARGS,
     "Give `type` what looks at the classes that libraries make for a session."},
    {"getattr", (PyCFunction)(void *)session_getattr, METH_FASTCALL,
     "getattr(object, name[, default], /)\n--\n\nGet an attribute by the rules of the session."},
    {"hasattr", (PyCFunction)(void *)session_hasattr, METH_FASTCALL,
     "hasattr(obj, name, /)\n--\n\nWhether the session may read the attribute, and it is there."},
    {"enforce", enforce, METH_VARARGS, "Put the rules of a policy in force."},
    {"overlay", overlay, METH_VARARGS, "Lay the second folder over the first; empty for neither."},
    {"overlay_path", overlay_path, METH_VARARGS, "The path that is meant by one that is opened in a mode."},
    {"watch", watch, METH_O, "Arm the audit hook where no frame decides (1), or take that back (-1)."},
    {"arm", arm, METH_NOARGS, "Arm the audit hook where no frame decides, for good."},
    {"lift", lift, METH_NOARGS, "Put the rules out of force, in a process that has no language wall any more."},
    {"is_armed", is_armed, METH_NOARGS, "Whether what runs now is the session's, or a library's on its behalf."},
    {"refusals", refused_events, METH_NOARGS, "How many events the audit hook has refused."},
    {"note", note, METH_O, "Take note of dicts, classes and functions that the wall consists of."},
    {"seal", seal, METH_O,
     "Let only the wall's own code change what was noted, and these parts; False if it has changed since it was noted."},
    {"check_methods", check_methods, METH_VARARGS,
     "Let the methods of a class that are of that type look at the object they are called with; not of an ordinary class."},
    {"freeze", freeze, METH_O, "Make a class or a function refuse to be changed, for good."},
    {"changed", changed, METH_NOARGS, "The name of a part of the wall that is not what it was, or None."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef collecting_method = {"collecting", collecting, METH_VARARGS, NULL};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_core", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

static int watch_collector(void) {
    PyObject *gc = PyImport_ImportModule("gc");
    PyObject *callbacks = gc == NULL ? NULL : PyObject_GetAttrString(gc, "callbacks");
    PyObject *function = PyCFunction_New(&collecting_method, NULL);
    int done = callbacks == NULL || function == NULL ? -1 : PyList_Append(callbacks, function);
    Py_XDECREF(gc);
    Py_XDECREF(callbacks);
    Py_XDECREF(function);
    return done;
}

PyMODINIT_FUNC PyInit__core(void) {
    Key_Type.tp_base = &_PyWeakref_RefType;
    if (PyType_Ready(&Members_Type) < 0 || PyType_Ready(&Key_Type) < 0 || PyType_Ready(&Entry_Type) < 0 ||
        PyType_Ready(&Entries_Type) < 0) {
        return NULL;
    }
    if ((subclasses_of = PyObject_GetAttrString((PyObject *)&PyType_Type, "__subclasses__")) == NULL) {
        return NULL;
    }
    PyObject *module = PyModule_Create(&MODULE);
    if (module == NULL || hooked) {
        return module;
    }
    harmless = new_members(1);
    if (harmless == NULL || PyModule_AddObjectRef(module, "HARMLESS", harmless) < 0 ||
        PyModule_AddIntConstant(module, "TRUSTED", TRUSTED) < 0 ||
        PyModule_AddIntConstant(module, "GENERATOR", GENERATOR) < 0 ||
        PyModule_AddIntConstant(module, "IMPORTER", IMPORTER) < 0 || PyModule_AddIntConstant(module, "OURS", OURS) < 0 ||
                PyModule_AddIntConstant(module, "STATEMENTS", STATEMENTS) < 0 || guard_originals() < 0 || place_functions() < 0 ||
        guard_type() < 0 || guard_proxies() < 0 || guard_functions() < 0 || watch_collector() < 0 ||
        PySys_AddAuditHook(hook, NULL) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    hooked = 1;
    return module;
}
