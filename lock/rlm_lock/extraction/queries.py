"""Which nodes of a syntax tree name a definition or an import: one query per grammar.

The name of a capture is the kind of definition; ``import`` captures what `rlm_lock.extraction.imports` reads. Captures
that begin with an underscore only serve a condition of the query.
"""

from __future__ import annotations

from collections.abc import Mapping

_PYTHON = """
(function_definition name: (identifier) @function)
(class_definition body: (block (function_definition name: (identifier) @method)))
(class_definition body: (block (decorated_definition definition: (function_definition name: (identifier) @method))))
(class_definition name: (identifier) @class)
(module (expression_statement (assignment left: (identifier) @constant)))
(type_alias_statement left: (type (identifier) @type))
(import_statement) @import
(import_from_statement) @import
"""

_JAVASCRIPT = """
(function_declaration name: (identifier) @function)
(generator_function_declaration name: (identifier) @function)
(class_declaration name: (_) @class)
(method_definition name: (property_identifier) @method)
(program (lexical_declaration (variable_declarator name: (identifier) @constant)))
(program (variable_declaration (variable_declarator name: (identifier) @constant)))
(export_statement declaration: (lexical_declaration (variable_declarator name: (identifier) @constant)))
(program (expression_statement (assignment_expression
  left: (member_expression property: (property_identifier) @function)
  right: [(function_expression) (arrow_function)])))
(import_statement source: (string) @import)
(export_statement source: (string) @import)
(call_expression function: (identifier) @_name arguments: (arguments . (string) @import) (#eq? @_name "require"))
(call_expression function: (import) arguments: (arguments . (string) @import))
"""

_TYPESCRIPT = (
    _JAVASCRIPT
    + """
(abstract_class_declaration name: (_) @class)
(interface_declaration name: (_) @interface)
(type_alias_declaration name: (_) @type)
(enum_declaration name: (_) @enum)
(internal_module name: (_) @module)
(function_signature name: (identifier) @function)
(abstract_method_signature name: (property_identifier) @method)
(ambient_declaration (lexical_declaration (variable_declarator name: (identifier) @constant)))
"""
)

_C = """
(function_definition declarator: (function_declarator declarator: (identifier) @function))
(function_definition declarator: (pointer_declarator
  declarator: (function_declarator declarator: (identifier) @function)))
(function_definition declarator: (pointer_declarator declarator: (pointer_declarator
  declarator: (function_declarator declarator: (identifier) @function))))
(struct_specifier name: (type_identifier) @struct body: (_))
(union_specifier name: (type_identifier) @struct body: (_))
(enum_specifier name: (type_identifier) @enum body: (_))
(type_definition declarator: (type_identifier) @type)
(type_definition declarator: (function_declarator
  declarator: (parenthesized_declarator (pointer_declarator declarator: (type_identifier) @type))))
(preproc_function_def name: (identifier) @macro)
(preproc_def name: (identifier) @macro value: (_))
(preproc_include path: (_) @import)
"""

_CPP = (
    _C
    + """
(class_specifier name: (type_identifier) @class body: (_))
(namespace_definition name: (_) @module)
(function_definition declarator: (function_declarator declarator: (field_identifier) @method))
(function_definition declarator: (function_declarator
  declarator: (qualified_identifier name: (identifier) @method)))
(function_definition declarator: (function_declarator
  declarator: (qualified_identifier name: (qualified_identifier name: (identifier) @method))))
(function_definition declarator: (reference_declarator
  (function_declarator declarator: (qualified_identifier name: (identifier) @method))))
(field_declaration declarator: (function_declarator declarator: (field_identifier) @method))
(alias_declaration name: (type_identifier) @type)
(concept_definition name: (identifier) @type)
"""
)

_GO = """
(function_declaration name: (identifier) @function)
(method_declaration name: (field_identifier) @method)
(type_spec name: (type_identifier) @type)
(type_alias name: (type_identifier) @type)
(source_file (const_declaration (const_spec name: (identifier) @constant)))
(source_file (var_declaration (var_spec name: (identifier) @constant)))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @constant))))
(import_spec path: (_) @import)
"""

_RUST = """
(function_item name: (identifier) @function)
(impl_item body: (declaration_list (function_item name: (identifier) @method)))
(trait_item body: (declaration_list (function_item name: (identifier) @method)))
(function_signature_item name: (identifier) @method)
(struct_item name: (type_identifier) @struct)
(union_item name: (type_identifier) @struct)
(enum_item name: (type_identifier) @enum)
(trait_item name: (type_identifier) @trait)
(type_item name: (type_identifier) @type)
(const_item name: (identifier) @constant)
(static_item name: (identifier) @constant)
(macro_definition name: (identifier) @macro)
(mod_item name: (identifier) @module body: (_))
(mod_item !body) @import
(use_declaration) @import
"""

_JAVA = """
(class_declaration name: (identifier) @class)
(record_declaration name: (identifier) @class)
(interface_declaration name: (identifier) @interface)
(annotation_type_declaration name: (identifier) @interface)
(enum_declaration name: (identifier) @enum)
(method_declaration name: (identifier) @method)
(import_declaration) @import
"""

_C_SHARP = """
(class_declaration name: (identifier) @class)
(record_declaration name: (identifier) @class)
(struct_declaration name: (identifier) @struct)
(interface_declaration name: (identifier) @interface)
(enum_declaration name: (identifier) @enum)
(delegate_declaration name: (identifier) @type)
(method_declaration name: (identifier) @method)
(property_declaration name: (identifier) @property)
(using_directive) @import
"""

_RUBY = """
(class name: (constant) @class)
(class name: (scope_resolution name: (constant) @class))
(module name: (constant) @module)
(module name: (scope_resolution name: (constant) @module))
(method name: (_) @method)
(singleton_method name: (_) @method)
(assignment left: (constant) @constant)
(call method: (identifier) @_name arguments: (argument_list . (string))
  (#any-of? @_name "require" "require_relative" "load")) @import
(call method: (identifier) @_name arguments: (argument_list . (_) . (string) @import) (#eq? @_name "autoload"))
"""

_PHP = """
(class_declaration name: (name) @class)
(interface_declaration name: (name) @interface)
(trait_declaration name: (name) @trait)
(enum_declaration name: (name) @enum)
(function_definition name: (name) @function)
(method_declaration name: (name) @method)
(const_declaration (const_element . (name) @constant))
(namespace_use_declaration) @import
(require_expression) @import
(require_once_expression) @import
(include_expression) @import
(include_once_expression) @import
"""

_BASH = """
(function_definition name: (word) @function)
(command name: (command_name) @_name . argument: (_) @import (#any-of? @_name "source" "."))
"""

QUERIES: Mapping[str, str] = {
    "bash": _BASH,
    "c": _C,
    "c_sharp": _C_SHARP,
    "cpp": _CPP,
    "go": _GO,
    "java": _JAVA,
    "javascript": _JAVASCRIPT,
    "php": _PHP,
    "python": _PYTHON,
    "ruby": _RUBY,
    "rust": _RUST,
    "tsx": _TYPESCRIPT,
    "typescript": _TYPESCRIPT,
}
"""The query of each grammar."""
