/* Finds the names of a namespace that a cell has bound to other objects, except those that begin with an underscore:
each cell adds some, and nobody is told of them.

It compares objects by address and takes no reference, because a reference writes to the object's page, and after a
copy of the process was taken, the first write to a page copies it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* A name, by its hash, and the address of its object. No hash is -1, so that stands for an empty slot. */
struct slot {
    Py_hash_t name;
    PyObject *value;
};

/* The slot of a name, or the empty one where it would be; one of them is always empty. */
static struct slot *find(struct slot *slots, size_t room, Py_hash_t name) {
    size_t at = (size_t)name & (room - 1);
    while (slots[at].name != -1 && slots[at].name != name) {
        at = (at + 1) & (room - 1);
    }
    return &slots[at];
}

PyDoc_STRVAR(noted_doc, "noted(namespace, /)\n--\n\n"
                        "Return what `bound` needs to know of a namespace as it is now; it keeps no object alive.");

/* Whether a key is a name that counts. Any other key may have a hash in Python. */
static int counts(PyObject *key) {
    return PyUnicode_CheckExact(key) && !(PyUnicode_GET_LENGTH(key) > 0 && PyUnicode_READ_CHAR(key, 0) == '_');
}

static PyObject *noted(PyObject *module, PyObject *namespace) {
    if (!PyDict_Check(namespace)) {
        PyErr_SetString(PyExc_TypeError, "a namespace is a dict");
        return NULL;
    }
    size_t room = 8;
    while (room < 2 * (size_t)PyDict_GET_SIZE(namespace)) {
        room *= 2;
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(room * sizeof(struct slot)));
    if (made == NULL) {
        return NULL;
    }
    struct slot *slots = (struct slot *)PyBytes_AS_STRING(made);
    for (size_t at = 0; at < room; at++) {
        slots[at] = (struct slot){-1, NULL};
    }
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(namespace, &at, &key, &value);) {
        if (counts(key)) {
            Py_hash_t name = PyObject_Hash(key);
            *find(slots, room, name) = (struct slot){name, value};
        }
    }
    return made;
}

PyDoc_STRVAR(bound_doc, "bound(before, namespace, /)\n--\n\n"
                        "Return the part of a namespace whose names are new or mean other objects than when `noted`.");

static PyObject *bound(PyObject *module, PyObject *args) {
    PyObject *before, *namespace, *key, *value;
    if (!PyArg_ParseTuple(args, "O!O!:bound", &PyBytes_Type, &before, &PyDict_Type, &namespace)) {
        return NULL;
    }
    size_t room = (size_t)PyBytes_GET_SIZE(before) / sizeof(struct slot);
    if (room == 0 || (room & (room - 1)) != 0) {
        PyErr_SetString(PyExc_ValueError, "before is what `noted` has returned");
        return NULL;
    }
    struct slot *slots = (struct slot *)PyBytes_AS_STRING(before);
    PyObject *found = PyDict_New();
    for (Py_ssize_t at = 0; found != NULL && PyDict_Next(namespace, &at, &key, &value);) {
        if (!counts(key)) {
            continue;
        }
        struct slot *known = find(slots, room, PyObject_Hash(key));
        if ((known->name == -1 || known->value != value) && PyDict_SetItem(found, key, value) < 0) {
            Py_CLEAR(found);
        }
    }
    return found;
}

static PyMethodDef functions[] = {
    {"noted", noted, METH_O, noted_doc}, {"bound", bound, METH_VARARGS, bound_doc}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_bindings", .m_doc = "Tells which names a cell has bound.", .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__bindings(void) { return PyModule_Create(&definition); }
