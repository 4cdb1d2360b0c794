/* Makes objects immortal before a process forks, so that forks share their pages for good.

Using an object counts references, which writes to its page. In a fork, the first write to each page copies the page.
The interpreter does not count the references of immortal objects (PEP 683, from Python 3.12), and never frees them. So it
never frees what they hold either: a fork that has no use for a file or socket of its parent closes it, and does not leave
that to the last reference. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX >= 0x030C0000 && !defined(Py_GIL_DISABLED) && SIZEOF_VOID_P > 4
#if PY_VERSION_HEX >= 0x030E0000
#define IMMORTAL _Py_IMMORTAL_INITIAL_REFCNT
#else
#define IMMORTAL _Py_IMMORTAL_REFCNT
#endif

/* Whether nothing else happens when an object of Python's own classes is freed: no file is closed, no code runs. */
static int is_plain(PyTypeObject *type) {
    return type == &PyUnicode_Type || type == &PyBytes_Type || type == &PyLong_Type || type == &PyFloat_Type
        || type == &PyTuple_Type || type == &PyFrozenSet_Type || type == &PyDict_Type || type == &PyList_Type
        || type == &PySet_Type || type == &PyCode_Type || type == &PyFunction_Type || type == &PyCell_Type
        || type == &PyCFunction_Type || type == &PyMethod_Type || type == &PyMethodDescr_Type
        || type == &PyClassMethodDescr_Type || type == &PyWrapperDescr_Type || type == &PyGetSetDescr_Type
        || type == &PyMemberDescr_Type || type == &PyProperty_Type || type == &PyStaticMethod_Type
        || type == &PyClassMethod_Type || type == &PyModule_Type || type == &_PyWeakref_RefType;
}

/* Whether the objects of a class that was written in Python hold nothing but other objects, and have no `__del__`. */
static int is_simple(PyTypeObject *type) {
    if (type->tp_finalize != NULL || type->tp_del != NULL) {
        return 0;
    }
    while (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
        type = type->tp_base;
    }
    return type == &PyBaseObject_Type;
}

static int visit(PyObject *object, void *count);

/* Make an object immortal if it may be, with the parts of which the collector does not know. */
static void keep(PyObject *object, Py_ssize_t *count) {
    if (_Py_IsImmortal(object) || !(is_plain(Py_TYPE(object)) || PyType_Check(object) || is_simple(Py_TYPE(object)))) {
        return;
    }
    Py_SET_REFCNT(object, IMMORTAL);
    ++*count;
    if (PyCode_Check(object)) {
        PyCodeObject *code = (PyCodeObject *)object;
        PyObject *parts[] = {
            code->co_consts, code->co_names, code->co_localsplusnames, code->co_localspluskinds, code->co_filename,
            code->co_name, code->co_qualname, code->co_linetable, code->co_exceptiontable,
        };
        for (size_t at = 0; at < sizeof(parts) / sizeof(parts[0]); at++) {
            visit(parts[at], count);
        }
    } else if (PyObject_IS_GC(object) && !PyObject_GC_IsTracked(object)) {
        Py_TYPE(object)->tp_traverse(object, visit, count);
    }
}

static int visit(PyObject *object, void *count) {
    if (object != NULL && !PyObject_GC_IsTracked(object)) {
        keep(object, count);
    }
    return 0;
}
#endif

PyDoc_STRVAR(make_immortal_doc, "make_immortal(tracked, /)\n--\n\n"
                                "Make objects that the collector tracks immortal, with those that only they know.\n\n"
                                "An object is left as it is if something else would happen when it is freed: if it\n"
                                "has a finalizer, or is of a class in C that may own more than objects. Returns how\n"
                                "many have become immortal: 0 before Python 3.12.");

static PyObject *make_immortal(PyObject *module, PyObject *tracked) {
    Py_ssize_t count = 0;
    if (!PyList_Check(tracked)) {
        PyErr_SetString(PyExc_TypeError, "tracked is a list");
        return NULL;
    }
#ifdef IMMORTAL
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(tracked); at++) {
        PyObject *object = PyList_GET_ITEM(tracked, at);
        keep(object, &count);
        if (PyObject_GC_IsTracked(object)) {
            Py_TYPE(object)->tp_traverse(object, visit, &count);
        }
    }
#endif
    return PyLong_FromSsize_t(count);
}

static PyMethodDef functions[] = {{"make_immortal", make_immortal, METH_O, make_immortal_doc}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_immortal", .m_doc = "Makes objects immortal before a fork.", .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__immortal(void) { return PyModule_Create(&definition); }
