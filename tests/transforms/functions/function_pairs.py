"""Pairs of functions that differ in what they compute: the text before the function, its body, and the difference.

A pair is (common text, one variant, the other variant); the text has ``@@`` where the variants stand. The function is
``f(x)`` over whole numbers and is bound to ``f`` by the text; ``body`` is used where the text does not define it.
"""

from __future__ import annotations

BODY = """

def f(x):
    return pa.array([float(value(v)) for v in x.to_pylist()], pa.float64())
"""

#: name: (text with @@, variant, other variant)
PAIRS: dict[str, tuple[str, str, str]] = {
    # closures, defaults, lambdas
    "closure value": (
        "def make(k):\n    def inner(v):\n        return v * k\n    return inner\nvalue = make(@@)",
        "2",
        "3",
    ),
    "closure over a list": (
        "def make(k):\n    def inner(v):\n        return v * k[0]\n    return inner\nvalue = make([@@])",
        "2",
        "3",
    ),
    "closure over a closure": (
        "def make(k):\n    g = lambda v: v + k\n    def inner(v):\n        return g(v)\n    return inner\nvalue = make(@@)",
        "2",
        "3",
    ),
    "closure rebound": (
        "def make():\n    k = 1\n    def inner(v):\n        return v * k\n    k = @@\n    return inner\nvalue = make()",
        "2",
        "3",
    ),
    "closure int or float": (
        "def make(k):\n    def inner(v):\n        return (v + k) // k if isinstance(k, int) else v / k\n    return inner\nvalue = make(@@)",
        "2",
        "2.0",
    ),
    "loop variable caught late": (
        "def make():\n    fs = []\n    for k in @@:\n        fs.append(lambda v: v * k)\n    return fs[0]\nvalue = make()",
        "(1, 2)",
        "(1, 3)",
    ),
    "default": ("def value(v, k=@@):\n    return v * k", "2", "3"),
    "default True or 1": (
        "def value(v, k=@@):\n    return v + (10 if k == 1 and isinstance(k, bool) else 0)",
        "1",
        "True",
    ),
    "keyword default": ("def value(v, *, k=@@):\n    return v * k", "2", "3"),
    "default replaced": ("def value(v, k=1):\n    return v * k\nvalue.__defaults__ = (@@,)", "2", "3"),
    "keyword default replaced": ("def value(v, *, k=1):\n    return v * k\nvalue.__kwdefaults__ = {'k': @@}", "2", "3"),
    "default over a global that changed": ("K = 1\ndef value(v, k=K):\n    return v * k + K\nK = @@", "2", "3"),
    "default -0.0 or 0.0": ("import math\ndef value(v, k=@@):\n    return math.copysign(1, k)", "0.0", "-0.0"),
    "lambda in a dict": ("table = {'a': lambda v: v + @@}\ndef value(v):\n    return table['a'](v)", "1", "2"),
    "lambda in a list": (
        "table = [lambda v: v + 1, lambda v: v - 1]\ndef value(v):\n    return table[@@](v)",
        "0",
        "1",
    ),
    "order of lambdas": (
        "table = [@@]\ndef value(v):\n    return table[0](v)",
        "lambda v: v + 1, lambda v: v - 1",
        "lambda v: v - 1, lambda v: v + 1",
    ),
    "lambda in a tuple on one line": ("both = (lambda v: v + 1), (lambda v: v + 2)\nvalue = both[@@]", "0", "1"),
    "lambda with a default": ("value = lambda v, k=@@: v * k", "2", "3"),
    "code replaced": (
        "def value(v):\n    return v\ndef other(v):\n    return v + @@\nvalue.__code__ = other.__code__",
        "1",
        "2",
    ),
    "nested function": ("def value(v):\n    def inner(w):\n        return w @@ 2\n    return inner(v)", "+", "*"),
    "nested default": ("def value(v):\n    def inner(w, k=@@):\n        return w * k\n    return inner(v)", "2", "3"),
    "nested lambda": ("def value(v):\n    return (lambda w: w @@ 3)(v)", "+", "*"),
    "comprehension": ("def value(v):\n    return sum([each for each in range(v) if each % @@ == 0])", "2", "3"),
    "comprehension over a global": ("N = @@\ndef value(v):\n    return sum(each * N for each in range(v))", "2", "3"),
    "dict comprehension": ("def value(v):\n    return sum({each: each * @@ for each in range(3)}.values())", "2", "3"),
    "conditional": ("def value(v):\n    return 1 if v @@ 2 else 0", "<", "<="),
    "walrus": ("def value(v):\n    return (w := v * @@) + w", "2", "3"),
    "match": ("def value(v):\n    match v:\n        case @@:\n            return 1\n    return 0", "1", "2"),
    "fold of constants": ("def value(v):\n    return v + @@", "2 * 3", "2 + 3"),
    "true division": ("def value(v):\n    return v @@ 2", "/", "//"),
    "augmented": ("def value(v):\n    v @@= 2\n    return v", "+", "*"),
    "star arguments": (
        "def g(a, b):\n    return a - b\nargs = (@@)\ndef value(v):\n    return v + g(*args)",
        "1, 2",
        "2, 1",
    ),
    "mapping arguments": (
        "def g(a, b):\n    return a - b\nargs = {@@}\ndef value(v):\n    return v + g(**args)",
        "'a': 1, 'b': 2",
        "'a': 2, 'b': 1",
    ),
    "try or else": (
        "def value(v):\n    try:\n        return 1 // (v - 1)\n    except ZeroDivisionError:\n        return @@",
        "7",
        "8",
    ),
    "finally": (
        "def value(v):\n    try:\n        return v\n    finally:\n        v = 1\n        @@",
        "pass",
        "return v",
    ),
    # globals
    "global rebound": ("K = 1\ndef value(v):\n    return v * K\nK = @@", "2", "3"),
    "global deleted and set": ("K = 1\ndel K\nK = @@\ndef value(v):\n    return v * K", "2", "3"),
    "helper rebound": (
        "def g(v):\n    return v\ng0 = g\ndef g(v):\n    return v + @@\ndef value(v):\n    return g(v)",
        "1",
        "2",
    ),
    "helper renamed": (
        "def a(v):\n    return v + 1\ndef b(v):\n    return v + 2\ng = @@\ndef value(v):\n    return g(v)",
        "a",
        "b",
    ),
    "helper of a helper": (
        "def h(v):\n    return v @@ 1\ndef g(v):\n    return h(v)\ndef value(v):\n    return g(v)",
        "+",
        "-",
    ),
    "name shadows a builtin": (
        "@@\ndef value(v):\n    return max(v, 1)",
        "",
        "def max(a, b):\n    return a if a < b else b",
    ),
    "builtin replaced": (
        "import builtins\nolder = builtins.max\nbuiltins.max = @@\ndef value(v):\n    return max(v, 1)\nundo = lambda: setattr(builtins, 'max', older)",
        "older",
        "min",
    ),
    "globals written": ("globals()['K'] = @@\ndef value(v):\n    return v * K", "2", "3"),
    "star import": (
        "@@\ndef value(v):\n    return floor(v + 0.5)",
        "from math import *",
        "def floor(v):\n    return v",
    ),
    "imports of one name": ("from math import @@ as g\ndef value(v):\n    return g(v)", "sin", "cos"),
    "package's functions": ("import math\ng = math.@@\ndef value(v):\n    return g(v + 0.5)", "floor", "ceil"),
    "import inside": ("def value(v):\n    import math\n    return math.@@(v + 0.5)", "floor", "ceil"),
    # attributes of functions and metadata
    "attribute of a function": ("def g(v):\n    return v * g.k\ng.k = @@\ndef value(v):\n    return g(v)", "2", "3"),
    "attribute of a helper": ("def h():\n    pass\nh.k = @@\ndef value(v):\n    return v * h.k", "2", "3"),
    "attribute by getattr": ("def h():\n    pass\nh.k = @@\ndef value(v):\n    return v * getattr(h, 'k')", "2", "3"),
    "name of a function": (
        "def h():\n    pass\nh.__name__ = '@@'\ndef value(v):\n    return len(h.__name__)",
        "h",
        "hh",
    ),
    "docstring": ("def h():\n    '''@@'''\ndef value(v):\n    return len(h.__doc__)", "a", "bb"),
    "docstring by getattr": ("def h():\n    '''@@'''\ndef value(v):\n    return len(getattr(h, '__doc__'))", "a", "bb"),
    "own docstring": ("def value(v):\n    '''@@'''\n    return len(value.__doc__)", "a", "bb"),
    "annotations": ("def h(a: @@):\n    pass\ndef value(v):\n    return len(str(h.__annotations__))", "int", "float"),
    "annotations by typing": (
        "import typing\ndef h(a: @@):\n    pass\ndef value(v):\n    return len(str(typing.get_type_hints(h)))",
        "int",
        "str",
    ),
    "module's name": ("__name__ = '@@'\ndef value(v):\n    return len(__name__)", "a", "bb"),
    "module's docstring": ("__doc__ = '@@'\ndef value(v):\n    return len(__doc__)", "a", "bb"),
    "defaults as a value": ("def h(a=@@):\n    return a\ndef value(v):\n    return h.__defaults__[0]", "2", "3"),
    "code as a value": ("def h(a):\n    @@\ndef value(v):\n    return h.__code__.co_firstlineno", "pass", "pass\n\n"),
    "first line": ("@@def h():\n    pass\ndef value(v):\n    return h.__code__.co_firstlineno", "", "\n\n"),
    "line of a traceback": (
        "def value(v):\n@@    try:\n        raise ValueError\n    except ValueError as error:\n        return error.__traceback__.tb_lineno",
        "",
        "\n\n",
    ),
    "module of a class": (
        "class K:\n    pass\nK.__module__ = '@@'\ndef value(v):\n    return len(K.__module__)",
        "a",
        "bb",
    ),
    "name of a class": (
        "class K:\n    pass\nK.__name__ = '@@'\ndef value(v):\n    return len(type(K()).__name__)",
        "K",
        "KK",
    ),
    # decorators, partials, caches
    "decorator's argument": (
        "def times(k):\n    def wrap(g):\n        def inner(v):\n            return g(v) * k\n        return inner\n    return wrap\n@times(@@)\ndef value(v):\n    return v",
        "2",
        "3",
    ),
    "decorator by wraps": (
        "import functools\ndef times(k):\n    def wrap(g):\n        @functools.wraps(g)\n        def inner(v):\n            return g(v) * k\n        return inner\n    return wrap\n@times(@@)\ndef value(v):\n    return v",
        "2",
        "3",
    ),
    "order of decorators": (
        "def plus(g):\n    return lambda v: g(v) + 1\ndef double(g):\n    return lambda v: g(v) * 2\n@@\ndef value(v):\n    return v",
        "@plus\n@double",
        "@double\n@plus",
    ),
    "decorator left out": ("def plus(g):\n    return lambda v: g(v) + 1\n@@\ndef value(v):\n    return v", "", "@plus"),
    "partial's argument": (
        "import functools\ndef g(k, v):\n    return v * k\nvalue = functools.partial(g, @@)",
        "2",
        "3",
    ),
    "partial's keyword": (
        "import functools\ndef g(v, k):\n    return v * k\nvalue = functools.partial(g, k=@@)",
        "2",
        "3",
    ),
    "partial's function": (
        "import functools, operator\ng = functools.partial(operator.@@, 2)\ndef value(v):\n    return g(v)",
        "add",
        "mul",
    ),
    "partial of a partial": (
        "import functools\ndef g(a, b, v):\n    return a * v - b\nvalue = functools.partial(functools.partial(g, 2), @@)",
        "1",
        "2",
    ),
    "partial's attribute": (
        "import functools\ndef g(v):\n    return v\np = functools.partial(g)\np.k = @@\ndef value(v):\n    return p(v) * p.k",
        "2",
        "3",
    ),
    "cached function": (
        "import functools\n@functools.lru_cache\ndef g(v):\n    return v * @@\ndef value(v):\n    return g(v)",
        "2",
        "3",
    ),
    "cache's size": (
        "import functools\n@functools.lru_cache(maxsize=@@)\ndef g(v):\n    return v\ndef value(v):\n    return g.cache_info().maxsize",
        "2",
        "3",
    ),
    "cache's content": (
        "import functools\nk = [@@]\n@functools.lru_cache\ndef g(v):\n    return v * k[0]\ng(1)\nk[0] = 9\ndef value(v):\n    return g(v)",
        "2",
        "3",
    ),
    "reduce": (
        "import functools\ndef g(a, b):\n    return a @@ b\ndef value(v):\n    return functools.reduce(g, range(1, v + 2))",
        "+",
        "*",
    ),
    "operator": ("import operator\ndef value(v):\n    return operator.@@(v, 2)", "add", "mul"),
    "attrgetter": (
        "import operator\ndef h():\n    pass\nh.k = @@\ng = operator.attrgetter('k')\ndef value(v):\n    return g(h)",
        "2",
        "3",
    ),
    "singledispatch": (
        "import functools\n@functools.singledispatch\ndef g(v):\n    return v\n@g.register\ndef _(v: int):\n    return v * @@\ndef value(v):\n    return g(v)",
        "2",
        "3",
    ),
    "context manager": (
        "import contextlib\n@contextlib.contextmanager\ndef g():\n    yield @@\ndef value(v):\n    with g() as k:\n        return v * k",
        "2",
        "3",
    ),
    "generator": ("def g(v):\n    yield v\n    yield @@\ndef value(v):\n    return sum(g(v))", "2", "3"),
    "callable object": (
        "class K:\n    def __init__(self, k):\n        self.k = k\n    def __call__(self, v):\n        return v * self.k\nvalue = K(@@)",
        "2",
        "3",
    ),
    "callable dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass K:\n    k: int\n    def __call__(self, v):\n        return v * self.k\nvalue = K(@@)",
        "2",
        "3",
    ),
    "bound method": (
        "class K:\n    k = 1\n    def g(self, v):\n        return v * self.k\none = K()\none.k = @@\nvalue = one.g",
        "2",
        "3",
    ),
    # classes
    "class attribute in the body": ("class K:\n    k = @@\ndef value(v):\n    return v * K.k", "2", "3"),
    "class attribute set later": ("class K:\n    k = 1\nK.k = @@\ndef value(v):\n    return v * K.k", "2", "3"),
    "class attribute from settings": (
        "settings = {'rate': 1}\nclass K:\n    k = settings['rate']\nK.k = {'rate': @@}['rate']\ndef value(v):\n    return v * K.k",
        "2",
        "3",
    ),
    "class body over a global that changed": (
        "R = @@\nclass K:\n    k = R\nR = 1\ndef value(v):\n    return v * K.k",
        "2",
        "3",
    ),
    "class attribute added": ("class K:\n    pass\nK.k = @@\ndef value(v):\n    return v * K.k", "2", "3"),
    "class attribute deleted": (
        "class B:\n    k = 2\nclass K(B):\n    k = 3\n@@\ndef value(v):\n    return v * K.k",
        "",
        "del K.k",
    ),
    "class attribute of a mutable": (
        "class K:\n    k = [1]\nK.k.append(@@)\ndef value(v):\n    return sum(K.k)",
        "2",
        "3",
    ),
    "class attribute by setattr": (
        "class K:\n    k = 1\nsetattr(K, 'k', @@)\ndef value(v):\n    return v * K.k",
        "2",
        "3",
    ),
    "class attribute by getattr": (
        "class K:\n    k = 1\nK.k = @@\ndef value(v):\n    return v * getattr(K, 'k')",
        "2",
        "3",
    ),
    "method in the body": (
        "class K:\n    def g(self, v):\n        return v @@ 2\ndef value(v):\n    return K().g(v)",
        "+",
        "*",
    ),
    "method replaced": (
        "class K:\n    def g(self, v):\n        return v\ndef other(self, v):\n    return v + @@\nK.g = other\ndef value(v):\n    return K().g(v)",
        "1",
        "2",
    ),
    "method replaced by a namesake": (
        "class A:\n    def g(self, v):\n        return v + @@\nB = A\nclass K:\n    def g(self, v):\n        return v\nA.g.__qualname__ = 'K.g'\nK.g = A.g\ndef value(v):\n    return K().g(v)",
        "1",
        "2",
    ),
    "method's default replaced": (
        "class K:\n    def g(self, v, k=1):\n        return v * k\nK.g.__defaults__ = (@@,)\ndef value(v):\n    return K().g(v)",
        "2",
        "3",
    ),
    "method's default over a global": (
        "R = @@\nclass K:\n    def g(self, v, k=R):\n        return v * k\nR = 1\ndef value(v):\n    return K().g(v)",
        "2",
        "3",
    ),
    "method's global": (
        "R = @@\nclass K:\n    def g(self, v):\n        return v * R\ndef value(v):\n    return K().g(v)",
        "2",
        "3",
    ),
    "method's attribute": (
        "class K:\n    def g(self, v):\n        return v * K.g.k\nK.g.k = @@\ndef value(v):\n    return K().g(v)",
        "2",
        "3",
    ),
    "method's code replaced": (
        "class K:\n    def g(self, v):\n        return v\ndef other(self, v):\n    return v * @@\nK.g.__code__ = other.__code__\ndef value(v):\n    return K().g(v)",
        "2",
        "3",
    ),
    "static method": (
        "class K:\n    @staticmethod\n    def g(v):\n        return v @@ 2\ndef value(v):\n    return K.g(v)",
        "+",
        "*",
    ),
    "static method replaced": (
        "class K:\n    @staticmethod\n    def g(v):\n        return v\nK.g = staticmethod(lambda v: v * @@)\ndef value(v):\n    return K.g(v)",
        "2",
        "3",
    ),
    "class method": (
        "class K:\n    k = @@\n    @classmethod\n    def g(cls, v):\n        return v * cls.k\ndef value(v):\n    return K.g(v)",
        "2",
        "3",
    ),
    "class method on a subclass": (
        "class K:\n    k = 1\n    @classmethod\n    def g(cls, v):\n        return v * cls.k\nclass L(K):\n    k = 1\nL.k = @@\ndef value(v):\n    return L.g(v)",
        "2",
        "3",
    ),
    "property": (
        "class K:\n    @property\n    def k(self):\n        return @@\ndef value(v):\n    return v * K().k",
        "2",
        "3",
    ),
    "property replaced": (
        "class K:\n    @property\n    def k(self):\n        return 1\nK.k = property(lambda self: @@)\ndef value(v):\n    return v * K().k",
        "2",
        "3",
    ),
    "property's setter": (
        "class K:\n    @property\n    def k(self):\n        return self._k\n    @k.setter\n    def k(self, k):\n        self._k = k * @@\ndef value(v):\n    one = K()\n    one.k = v\n    return one.k",
        "2",
        "3",
    ),
    "cached property": (
        "import functools\nclass K:\n    @functools.cached_property\n    def k(self):\n        return @@\ndef value(v):\n    return v * K().k",
        "2",
        "3",
    ),
    "descriptor": (
        "class D:\n    def __init__(self, k):\n        self.k = k\n    def __get__(self, one, kind):\n        return self.k\nclass K:\n    k = D(@@)\ndef value(v):\n    return v * K.k",
        "2",
        "3",
    ),
    "descriptor replaced": (
        "class D:\n    def __init__(self, k):\n        self.k = k\n    def __get__(self, one, kind):\n        return self.k\nclass K:\n    k = D(1)\nvars(K)['k'].k = @@\ndef value(v):\n    return v * K.k",
        "2",
        "3",
    ),
    "inherited attribute": ("class B:\n    k = @@\nclass K(B):\n    pass\ndef value(v):\n    return v * K.k", "2", "3"),
    "inherited attribute set later": (
        "class B:\n    k = 1\nclass K(B):\n    pass\nB.k = @@\ndef value(v):\n    return v * K.k",
        "2",
        "3",
    ),
    "base": (
        "class A:\n    k = 2\nclass B:\n    k = 3\nclass K(@@):\n    pass\ndef value(v):\n    return v * K.k",
        "A",
        "B",
    ),
    "base replaced": (
        "class A:\n    k = 2\nclass B(A):\n    k = 3\nclass C(A):\n    k = 4\nclass K(A):\n    pass\nK.__bases__ = (@@,)\ndef value(v):\n    return v * K.k",
        "B",
        "C",
    ),
    "order of bases": (
        "class A:\n    k = 2\nclass B:\n    k = 3\nclass K(@@):\n    pass\ndef value(v):\n    return v * K.k",
        "A, B",
        "B, A",
    ),
    "super": (
        "class A:\n    def g(self, v):\n        return v @@ 2\nclass K(A):\n    def g(self, v):\n        return super().g(v)\ndef value(v):\n    return K().g(v)",
        "+",
        "*",
    ),
    "metaclass": (
        "class M(type):\n    def __call__(cls, v):\n        return v @@ 2\nclass K(metaclass=M):\n    pass\ndef value(v):\n    return K(v)",
        "+",
        "*",
    ),
    "metaclass' attribute": (
        "class M(type):\n    k = 1\nclass K(metaclass=M):\n    pass\nM.k = @@\ndef value(v):\n    return v * K.k",
        "2",
        "3",
    ),
    "__init_subclass__": (
        "class B:\n    def __init_subclass__(cls, k):\n        cls.k = k\nclass K(B, k=@@):\n    pass\ndef value(v):\n    return v * K.k",
        "2",
        "3",
    ),
    "registry of subclasses": (
        "class B:\n    pass\n@@\ndef value(v):\n    return len(B.__subclasses__())",
        "",
        "class C(B):\n    pass",
    ),
    "registry in a list": (
        "known = []\nclass B:\n    def __init_subclass__(cls):\n        known.append(cls)\n@@\ndef value(v):\n    return len(known)",
        "",
        "class C(B):\n    pass",
    ),
    "class decorator": (
        "def set_k(k):\n    def wrap(kind):\n        kind.k = k\n        return kind\n    return wrap\n@set_k(@@)\nclass K:\n    pass\ndef value(v):\n    return v * K.k",
        "2",
        "3",
    ),
    "slots": (
        "class K:\n    __slots__ = (@@)\ndef value(v):\n    try:\n        K().b = v\n    except AttributeError:\n        return 0\n    return v",
        "'a',",
        "'a', 'b'",
    ),
    "operator of a class": (
        "class K:\n    def __add__(self, other):\n        return other @@ 2\ndef value(v):\n    return K() + v",
        "+",
        "*",
    ),
    "operator replaced": (
        "class K:\n    def __add__(self, other):\n        return other\nK.__add__ = lambda self, other: other * @@\ndef value(v):\n    return K() + v",
        "2",
        "3",
    ),
    "equality": (
        "class K:\n    def __eq__(self, other):\n        return @@\n    def __hash__(self):\n        return 1\ndef value(v):\n    return K() == v",
        "True",
        "False",
    ),
    "__getattr__": (
        "class K:\n    def __getattr__(self, name):\n        return @@\ndef value(v):\n    return v * K().k",
        "2",
        "3",
    ),
    "__new__": ("class K:\n    def __new__(cls, v):\n        return v * @@\ndef value(v):\n    return K(v)", "2", "3"),
    "instance's state": ("class K:\n    pass\none = K()\none.k = @@\ndef value(v):\n    return v * one.k", "2", "3"),
    "nested class": (
        "class K:\n    class L:\n        k = 1\nK.L.k = @@\ndef value(v):\n    return v * K.L.k",
        "2",
        "3",
    ),
    "class in a list": (
        "class A:\n    k = 2\nclass B:\n    k = 3\nkinds = [@@]\ndef value(v):\n    return v * kinds[0].k",
        "A",
        "B",
    ),
    "class of a list changed": (
        "class A:\n    k = 1\nkinds = [A]\nA.k = @@\ndef value(v):\n    return v * kinds[0].k",
        "2",
        "3",
    ),
    "abstract class": (
        "import abc\nclass B(abc.ABC):\n    k = 1\n    @abc.abstractmethod\n    def g(self, v): ...\nclass K(B):\n    def g(self, v):\n        return v * self.k\nB.k = @@\ndef value(v):\n    return K().g(v)",
        "2",
        "3",
    ),
    "exception's class": (
        "class E(Exception):\n    k = 1\nE.k = @@\ndef value(v):\n    try:\n        raise E\n    except E as error:\n        return v * error.k",
        "2",
        "3",
    ),
    "builtin subclass": ("class L(list):\n    k = 1\nL.k = @@\ndef value(v):\n    return v * L().k", "2", "3"),
    "int subclass": ("class I(int):\n    pass\nK = I(@@)\ndef value(v):\n    return v * K", "2", "3"),
    "str subclass": (
        "class S(str):\n    def __len__(self):\n        return @@\nK = S('a')\ndef value(v):\n    return len(K)",
        "2",
        "3",
    ),
    "dict subclass": (
        "class D(dict):\n    def __missing__(self, key):\n        return @@\nK = D()\ndef value(v):\n    return K[v]",
        "2",
        "3",
    ),
    # dataclasses
    "dataclass default": (
        "import dataclasses\n@dataclasses.dataclass\nclass K:\n    k: int = @@\ndef value(v):\n    return v * K().k",
        "2",
        "3",
    ),
    "dataclass default over a global": (
        "import dataclasses\nR = @@\n@dataclasses.dataclass\nclass K:\n    k: int = R\nR = 1\ndef value(v):\n    return v * K().k",
        "2",
        "3",
    ),
    "dataclass default set later": (
        "import dataclasses\n@dataclasses.dataclass\nclass K:\n    k: int = 1\nK.__init__.__defaults__ = (@@,)\ndef value(v):\n    return v * K().k",
        "2",
        "3",
    ),
    "dataclass factory": (
        "import dataclasses\n@dataclasses.dataclass\nclass K:\n    k: list = dataclasses.field(default_factory=lambda: [@@])\ndef value(v):\n    return v * K().k[0]",
        "2",
        "3",
    ),
    "dataclass ClassVar": (
        "import dataclasses, typing\n@dataclasses.dataclass\nclass K:\n    k: typing.ClassVar[int] = 1\nK.k = @@\ndef value(v):\n    return v * K().k",
        "2",
        "3",
    ),
    "dataclass __post_init__": (
        "import dataclasses\nR = @@\n@dataclasses.dataclass\nclass K:\n    a: int = 1\n    def __post_init__(self):\n        self.b = R\none = K()\nR = 1\ndef value(v):\n    return v * one.b",
        "2",
        "3",
    ),
    "dataclass instance": (
        "import dataclasses\n@dataclasses.dataclass\nclass K:\n    k: int\none = K(@@)\ndef value(v):\n    return v * one.k",
        "2",
        "3",
    ),
    "dataclass instance's attribute": (
        "import dataclasses\n@dataclasses.dataclass\nclass K:\n    k: int\none = K(1)\none.extra = @@\ndef value(v):\n    return v * one.extra",
        "2",
        "3",
    ),
    "dataclass slots": (
        "import dataclasses\n@dataclasses.dataclass(slots=True)\nclass K:\n    k: int\none = K(@@)\ndef value(v):\n    return v * one.k",
        "2",
        "3",
    ),
    "dataclass order": (
        "import dataclasses\n@dataclasses.dataclass(order=True)\nclass K:\n    @@\ndef value(v):\n    return K(1, 2) < K(2, 1)",
        "a: int\n    b: int",
        "b: int\n    a: int = dataclasses.field(compare=False)",
    ),
    "dataclass frozen": (
        "import dataclasses\n@dataclasses.dataclass(frozen=@@)\nclass K:\n    a: int = 1\ndef value(v):\n    one = K()\n    try:\n        one.a = v\n    except AttributeError:\n        pass\n    return one.a",
        "True",
        "False",
    ),
    "dataclass fields": (
        "import dataclasses\n@dataclasses.dataclass\nclass K:\n    a: int = dataclasses.field(default=1, metadata={'k': @@})\ndef value(v):\n    return v * dataclasses.fields(K)[0].metadata['k']",
        "2",
        "3",
    ),
    "dataclass field's metadata replaced": (
        "import dataclasses\nM = {'k': 1}\n@dataclasses.dataclass\nclass K:\n    a: int = dataclasses.field(default=1, metadata=M)\nM['k'] = @@\nM = {'k': 1}\ndef value(v):\n    return v * dataclasses.fields(K)[0].metadata['k']",
        "2",
        "3",
    ),
    "dataclass inherited": (
        "import dataclasses\n@dataclasses.dataclass\nclass B:\n    k: int = @@\n@dataclasses.dataclass\nclass K(B):\n    pass\ndef value(v):\n    return v * K().k",
        "2",
        "3",
    ),
    # enumerations, named tuples
    "enum's value": ("import enum\nclass E(enum.Enum):\n    A = @@\ndef value(v):\n    return v * E.A.value", "2", "3"),
    "enum's value over a global": (
        "import enum\nR = @@\nclass E(enum.Enum):\n    A = R\nR = 1\ndef value(v):\n    return v * E.A.value",
        "2",
        "3",
    ),
    "enum's value replaced": (
        "import enum\nclass E(enum.Enum):\n    A = 1\nE.A._value_ = @@\ndef value(v):\n    return v * E.A.value",
        "2",
        "3",
    ),
    "enum member's attribute": (
        "import enum\nclass E(enum.Enum):\n    A = 1\nE.A.k = @@\ndef value(v):\n    return v * E.A.k",
        "2",
        "3",
    ),
    "enum's method": (
        "import enum\nclass E(enum.Enum):\n    A = 1\n    def g(self, v):\n        return v\nE.g = lambda self, v: v * @@\ndef value(v):\n    return E.A.g(v)",
        "2",
        "3",
    ),
    "enum's order": (
        "import enum\nclass E(enum.Enum):\n    @@\ndef value(v):\n    return [each.value for each in E][0]",
        "A = 1\n    B = 2",
        "B = 2\n    A = 1",
    ),
    "enum's member": (
        "import enum\nclass E(enum.Enum):\n    A = 2\n    B = 3\nK = E.@@\ndef value(v):\n    return v * K.value",
        "A",
        "B",
    ),
    "int enum": ("import enum\nclass E(enum.IntEnum):\n    A = @@\ndef value(v):\n    return v * E.A", "2", "3"),
    "flags combined": (
        "import enum\nclass E(enum.Flag):\n    A = 1\n    B = 2\n    C = 4\nK = E.A | E.@@\ndef value(v):\n    return v * K.value",
        "B",
        "C",
    ),
    "auto": (
        "import enum\nclass E(enum.Enum):\n    @@ = enum.auto()\n    C = enum.auto()\ndef value(v):\n    return E.C.value",
        "A",
        "A = enum.auto()\n    B",
    ),
    "NamedTuple default": (
        "import typing\nclass T(typing.NamedTuple):\n    k: int = @@\ndef value(v):\n    return v * T().k",
        "2",
        "3",
    ),
    "NamedTuple default over a global": (
        "import typing\nR = @@\nclass T(typing.NamedTuple):\n    k: int = R\nR = 1\ndef value(v):\n    return v * T().k",
        "2",
        "3",
    ),
    "NamedTuple order": (
        "import typing\nclass T(typing.NamedTuple):\n    @@\ndef value(v):\n    return T(2, 3).a",
        "a: int\n    b: int",
        "b: int\n    a: int",
    ),
    "namedtuple's class": (
        "import collections\nT = collections.namedtuple('T', '@@')\ndef value(v):\n    return T(2, 3).a",
        "a b",
        "b a",
    ),
    "named tuple": (
        "import typing\nclass T(typing.NamedTuple):\n    k: int\none = T(@@)\ndef value(v):\n    return v * one.k",
        "2",
        "3",
    ),
    # constants
    "int or float": ("K = @@\ndef value(v):\n    return len(str(K))", "1", "1.0"),
    "big int": ("K = @@\ndef value(v):\n    return K % 1000", "10**6000 + 1", "10**6000 + 2"),
    "NaN's payload": (
        "import struct\nK = struct.unpack('>d', bytes.fromhex('7ff80000000000@@'))[0]\ndef value(v):\n    return struct.pack('>d', K)[7]",
        "01",
        "02",
    ),
    "NaN's sign": ("import math\nK = @@float('nan')\ndef value(v):\n    return math.copysign(1, K)", "", "-"),
    "-0.0": ("import math\nK = @@0.0\ndef value(v):\n    return math.copysign(1, K)", "", "-"),
    "last bit": ("K = @@\ndef value(v):\n    return K", "0.1 + 0.2", "0.3"),
    "bytes or text": ("K = @@'a'\ndef value(v):\n    return isinstance(K, bytes)", "", "b"),
    "text with a surrogate": ("K = '@@'\ndef value(v):\n    return ord(K)", "\\ud800", "\\ud801"),
    "composed text": ("K = '@@'\ndef value(v):\n    return len(K)", "\\u00e9", "e\\u0301"),
    "tuple or list": ("K = @@\ndef value(v):\n    return isinstance(K, tuple)", "(1,)", "[1]"),
    "nesting": ("K = @@\ndef value(v):\n    return len(K)", "[[1], [2]]", "[[1, 2]]"),
    "order of a dict": (
        "K = {@@}\ndef value(v):\n    return next(iter(K.values()))",
        "'a': 1, 'b': 2",
        "'b': 2, 'a': 1",
    ),
    "key of a dict": ("K = {@@: 1}\ndef value(v):\n    return isinstance(next(iter(K)), str)", "1", "'1'"),
    "True or 1 as a key": ("K = {@@: 1}\ndef value(v):\n    return isinstance(next(iter(K)), bool)", "1", "True"),
    "default dict": (
        "import collections\nK = collections.defaultdict(@@)\ndef value(v):\n    return float(K[v] or 0)",
        "int",
        "lambda: 3",
    ),
    "ordered dict": (
        "import collections\nK = @@({'a': 1})\ndef value(v):\n    return isinstance(K, collections.OrderedDict)",
        "dict",
        "collections.OrderedDict",
    ),
    "set or frozenset": ("K = @@({1})\ndef value(v):\n    return isinstance(K, frozenset)", "set", "frozenset"),
    "set's items": ("K = {1, @@}\ndef value(v):\n    return v in K", "2", "3"),
    "set's order": ("K = {@@}\ndef value(v):\n    return list(K)[0]", "0, 8", "8, 0"),
    "set's order in a loop": ("K = {@@}\ndef value(v):\n    for each in K:\n        return each", "0, 8", "8, 0"),
    "set's order by pop": ("K = frozenset((@@))\ndef value(v):\n    return [each for each in K][0]", "0, 8", "8, 0"),
    "set of True or 1": ("K = {@@}\ndef value(v):\n    return isinstance(max(K), bool)", "1", "True"),
    "one list or two": ("A = [1]\nB = @@\ndef value(v):\n    return A is B", "A", "[1]"),
    "one list twice": ("A = [1]\nK = [@@]\ndef value(v):\n    return K[0] is K[1]", "A, A", "[1], [1]"),
    "one tuple or two": ("A = tuple([1])\nB = @@\ndef value(v):\n    return A is not B", "A", "tuple([1])"),
    "bytearray": ("K = bytearray(b'@@')\ndef value(v):\n    return K[0]", "a", "b"),
    "memoryview": ("K = memoryview(b'@@')\ndef value(v):\n    return K[0]", "a", "b"),
    "range": ("K = range(@@)\ndef value(v):\n    return len(K)", "2", "3"),
    "slice": ("K = slice(@@)\ndef value(v):\n    return len('abcdef'[K])", "2", "3"),
    "complex": ("K = @@\ndef value(v):\n    return K.imag", "1j", "2j"),
    "Decimal": ("import decimal\nK = decimal.Decimal('@@')\ndef value(v):\n    return len(str(K))", "1.0", "1.00"),
    "Decimal subclass": (
        "import decimal\nclass D(decimal.Decimal):\n    def __float__(self):\n        return 7.0\nK = @@('1')\ndef value(v):\n    return float(K)",
        "decimal.Decimal",
        "D",
    ),
    "Decimal's -0": ("import decimal\nK = decimal.Decimal('@@0')\ndef value(v):\n    return K.is_signed()", "", "-"),
    "Fraction": ("import fractions\nK = fractions.Fraction(1, @@)\ndef value(v):\n    return K", "2", "3"),
    "datetime's fold": (
        "import datetime\nK = datetime.datetime(2020, 1, 1, fold=@@)\ndef value(v):\n    return K.fold",
        "0",
        "1",
    ),
    "time's fold": ("import datetime\nK = datetime.time(1, fold=@@)\ndef value(v):\n    return K.fold", "0", "1"),
    "datetime's zone": (
        "import datetime\nK = datetime.datetime(2020, 1, 1, tzinfo=@@)\ndef value(v):\n    return K.tzinfo == datetime.timezone.utc",
        "None",
        "datetime.timezone.utc",
    ),
    "datetime's offset": (
        "import datetime\nK = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=@@)))\ndef value(v):\n    return K.utcoffset().seconds",
        "1",
        "2",
    ),
    "date or datetime": (
        "import datetime\nK = datetime.@@(2020, 1, 1)\ndef value(v):\n    return isinstance(K, datetime.datetime)",
        "date",
        "datetime",
    ),
    "timedelta": (
        "import datetime\nK = datetime.timedelta(microseconds=@@)\ndef value(v):\n    return K.microseconds",
        "1",
        "2",
    ),
    "flags of a pattern": (
        "import re\nK = re.compile('a'@@)\ndef value(v):\n    return bool(K.match('A'))",
        "",
        ", re.I",
    ),
    "pattern's type": (
        "import re\nK = re.compile(@@'a')\ndef value(v):\n    return isinstance(K.pattern, bytes)",
        "",
        "b",
    ),
    "pattern that depends on the locale": (
        "import re\nK = re.compile(b'\\xe9'@@)\ndef value(v):\n    return bool(K.match(b'\\xc9'))",
        "",
        ", re.I | re.L",
    ),
    "match of a pattern": ("import re\nK = re.match('(@@)', 'ab')\ndef value(v):\n    return len(K[1])", "a", "ab"),
    "UUID": ("import uuid\nK = uuid.UUID(int=@@)\ndef value(v):\n    return K.int", "1", "2"),
    # numpy
    "dtype": ("import numpy as np\nK = np.array([1], '@@')\ndef value(v):\n    return K.itemsize", "i4", "i8"),
    "byte order": (
        "import numpy as np\nK = np.array([1], '@@i4')\ndef value(v):\n    return K.view('<i4')[0]",
        "<",
        ">",
    ),
    "shape": ("import numpy as np\nK = np.zeros(@@)\ndef value(v):\n    return K.ndim", "(2, 2)", "4"),
    "order in memory": (
        "import numpy as np\nK = np.array([[1, 2], [3, 4]], order='@@')\ndef value(v):\n    return K.ravel('K')[1]",
        "C",
        "F",
    ),
    "view": ("import numpy as np\nK = np.arange(6)[@@]\ndef value(v):\n    return K.strides[0]", "::2", "::3"),
    "reversed view": (
        "import numpy as np\nK = @@\ndef value(v):\n    return K.strides[0]",
        "np.array([2, 1])",
        "np.array([1, 2])[::-1]",
    ),
    "transposed": ("import numpy as np\nK = np.array([[1, 2], [3, 4]])@@\ndef value(v):\n    return K[0, 1]", "", ".T"),
    "structured": (
        "import numpy as np\nK = np.array([(1, 2)], [@@])\ndef value(v):\n    return K['a'][0]",
        "('a', 'i4'), ('b', 'i4')",
        "('b', 'i4'), ('a', 'i4')",
    ),
    "array of objects": (
        "import numpy as np\nK = np.array([@@, None], object)\ndef value(v):\n    return K[0]",
        "1",
        "2",
    ),
    "masked": (
        "import numpy as np\nK = np.ma.array([1, 2], mask=[@@, 0])\ndef value(v):\n    return K.sum()",
        "0",
        "1",
    ),
    "array's NaN": (
        "import numpy as np\nK = np.array([0x7ff80000000000@@]).view('f8')\ndef value(v):\n    return K.view('i8')[0] % 256",
        "01",
        "02",
    ),
    "scalar's type": ("import numpy as np\nK = np.@@(1)\ndef value(v):\n    return K.itemsize", "int32", "int64"),
    "scalar or array": (
        "import numpy as np\nK = @@\ndef value(v):\n    return isinstance(K, np.ndarray)",
        "np.float64(1)",
        "np.array(1.0)",
    ),
    "matrix": (
        "import numpy as np\nK = @@([[1, 2], [3, 4]])\ndef value(v):\n    return (K * K)[0, 0]",
        "np.array",
        "np.matrix",
    ),
    "long double": (
        "import numpy as np\nK = np.longdouble('@@')\ndef value(v):\n    return K - 1 > 0",
        "1",
        "1.0000000000000000001",
    ),
    "datetime64's unit": (
        "import numpy as np\nK = np.datetime64('2020', '@@')\ndef value(v):\n    return K.astype('i8')",
        "Y",
        "D",
    ),
    "record": (
        "import numpy as np\nK = np.rec.array([(@@,)], dtype=[('a', 'i4')])\ndef value(v):\n    return K.a[0]",
        "1",
        "2",
    ),
    "dtype as a value": ("import numpy as np\nK = np.dtype('@@')\ndef value(v):\n    return K.itemsize", "i4", "i8"),
    "universal function": ("import numpy as np\ng = np.@@\ndef value(v):\n    return g(v, 2)", "add", "multiply"),
    "frompyfunc": (
        "import numpy as np\ng = np.frompyfunc(lambda v: v * @@, 1, 1)\ndef value(v):\n    return g(v)",
        "2",
        "3",
    ),
    "vectorize": ("import numpy as np\ng = np.vectorize(lambda v: v * @@)\ndef value(v):\n    return g(v)", "2", "3"),
    "polynomial": ("import numpy as np\nK = np.poly1d([@@, 1])\ndef value(v):\n    return K(v)", "2", "3"),
    # Arrow
    "Arrow type": ("K = pa.@@()\ndef value(v):\n    return pa.scalar(1, K).type.bit_width", "int32", "int64"),
    "Arrow scalar's type": ("K = pa.scalar(1, pa.@@())\ndef value(v):\n    return K.type.bit_width", "int32", "int64"),
    "Arrow array's nulls": ("K = pa.array([1, @@])\ndef value(v):\n    return K.null_count", "2", "None"),
    "Arrow slice": ("K = pa.array([1, 2, 3])[@@:]\ndef value(v):\n    return K[0].as_py()", "1", "2"),
    "Arrow dictionary": (
        "K = pa.array(['a', 'b']).dictionary_encode()@@\ndef value(v):\n    return len(K)",
        "",
        "[:1]",
    ),
    "Arrow time zone": (
        "K = pa.timestamp('us', '@@')\ndef value(v):\n    return pc.hour(pa.scalar(0, K)).as_py()",
        "UTC",
        "Asia/Kathmandu",
    ),
    "Arrow options": (
        "K = pc.RoundOptions(@@)\ndef value(v):\n    return pc.round(12.345, options=K).as_py()",
        "1",
        "2",
    ),
    "Arrow table": ("K = pa.table({'a': [@@]})\ndef value(v):\n    return K['a'][0].as_py()", "1", "2"),
    "Arrow chunked": ("K = pa.chunked_array([[@@]])\ndef value(v):\n    return K[0].as_py()", "1", "2"),
    "Arrow function": ("g = pc.@@\ndef value(v):\n    return g(v, 2).as_py()", "add", "multiply"),
    "pandas constant": ("import pandas as pd\nK = pd.Series([@@])\ndef value(v):\n    return K[0]", "1", "2"),
    "pandas in a class": (
        "import pandas as pd\nclass C:\n    k = pd.Series([1])\nC.k = pd.Series([@@])\ndef value(v):\n    return C.k[0]",
        "2",
        "3",
    ),
    # libraries that were changed, and their state
    "patched constant": (
        "import math\nolder = math.pi\nmath.pi = @@\ndef value(v):\n    return math.pi\nundo = lambda: setattr(math, 'pi', older)",
        "older",
        "3.0",
    ),
    "patched function": (
        "import math\nolder = math.sin\nmath.sin = @@\ndef value(v):\n    return math.sin(v)\nundo = lambda: setattr(math, 'sin', older)",
        "older",
        "math.cos",
    ),
    "patched by a project's function": (
        "import math\nolder = math.sin\nmath.sin = @@\ndef value(v):\n    return math.sin(v)\nundo = lambda: setattr(math, 'sin', older)",
        "older",
        "lambda v: 1.0",
    ),
    "patched Arrow": (
        "older = pc.add\npc.add = @@\ndef value(v):\n    return pc.add(v, 2).as_py()\nundo = lambda: setattr(pc, 'add', older)",
        "older",
        "pc.multiply",
    ),
    "patched numpy": (
        "import numpy as np\nolder = np.log\nnp.log = @@\ndef value(v):\n    return np.log(v + 1)\nundo = lambda: setattr(np, 'log', older)",
        "older",
        "np.log2",
    ),
    "patched class": (
        "import collections\nolder = collections.Counter.most_common\ncollections.Counter.most_common = @@\ndef value(v):\n    return len(collections.Counter('aab').most_common(1))\nundo = lambda: setattr(collections.Counter, 'most_common', older)",
        "older",
        "lambda self, n: []",
    ),
    "patched code": (
        "import textwrap\nolder = textwrap.dedent.__code__\ndef other(text):\n    return 'b'\ntextwrap.dedent.__code__ = @@\ndef value(v):\n    return len(textwrap.dedent(' aa'))\nundo = lambda: setattr(textwrap.dedent, '__code__', older)",
        "older",
        "other.__code__",
    ),
    "added to a module": (
        "import math\nmath.mine = @@\ndef value(v):\n    return math.mine\nundo = lambda: delattr(math, 'mine')",
        "2",
        "3",
    ),
    "np.seterr": (
        "import numpy as np\nolder = np.seterr(divide='@@')\ndef value(v):\n    try:\n        return 1 if np.float64(1) / np.float64(0) else 0\n    except FloatingPointError:\n        return 2\nundo = lambda: np.seterr(**older)",
        "warn",
        "raise",
    ),
    "np.set_printoptions": (
        "import numpy as np\nolder = np.get_printoptions()\nnp.set_printoptions(precision=@@)\ndef value(v):\n    return len(str(np.array([1 / 3])))\nundo = lambda: np.set_printoptions(**older)",
        "8",
        "3",
    ),
    "decimal context": (
        "import decimal\nolder = decimal.getcontext().prec\ndecimal.getcontext().prec = @@\ndef value(v):\n    return float(decimal.Decimal(1) / decimal.Decimal(3))\nundo = lambda: setattr(decimal.getcontext(), 'prec', older)",
        "28",
        "3",
    ),
    "decimal rounding": (
        "import decimal\nolder = decimal.getcontext().rounding\ndecimal.getcontext().rounding = decimal.@@\ndef value(v):\n    return float(round(decimal.Decimal('2.5')) + decimal.Decimal(1) / 3)\nundo = lambda: setattr(decimal.getcontext(), 'rounding', older)",
        "ROUND_HALF_EVEN",
        "ROUND_UP",
    ),
    "pandas option": (
        "import pandas as pd\nolder = pd.options.mode.sim_interactive\npd.set_option('mode.sim_interactive', @@)\ndef value(v):\n    return float(pd.Series([v]).sum())\nundo = lambda: pd.set_option('mode.sim_interactive', older)",
        "False",
        "True",
    ),
    "random state": ("import random\nrandom.seed(@@)\ndef value(v):\n    return random.random()", "1", "2"),
    "numpy's random state": (
        "import numpy as np\nrng = np.random.default_rng(@@)\ndef value(v):\n    return rng.random()",
        "1",
        "2",
    ),
    "iterator": ("K = iter([@@])\ndef value(v):\n    return next(K, 0)", "1", "2"),
    "generator's state": ("def g():\n    yield @@\nK = g()\ndef value(v):\n    return next(K, 0)", "1", "2"),
    "environment": (
        "import os\nos.environ['HEADRACE_PAIR'] = '@@'\ndef value(v):\n    return float(os.environ['HEADRACE_PAIR'])",
        "1",
        "2",
    ),
    "recursion limit": ("import sys\ndef value(v):\n    return sys.getrecursionlimit() + @@", "1", "2"),
    "builtin by another name": ("g = @@\ndef value(v):\n    return g(v, 2)", "max", "min"),
    "type as a value": ("g = @@\ndef value(v):\n    return g(v + 0.5)", "int", "float"),
    "exception as a value": (
        "E = @@\ndef value(v):\n    try:\n        return 1 // 0\n    except E:\n        return 1\n    except Exception:\n        return 2",
        "ValueError",
        "ZeroDivisionError",
    ),
    "text template": (
        "import string\nK = string.Template('@@')\ndef value(v):\n    return len(K.substitute(v=v))",
        "$v",
        "$v$v",
    ),
    "json decoder": (
        "import json\nK = json.JSONDecoder(parse_float=@@)\ndef value(v):\n    return len(str(K.decode('1.50')))",
        "float",
        "str",
    ),
    "struct": ("import struct\nK = struct.Struct('@@')\ndef value(v):\n    return K.size", "i", "q"),
    "translation table": ("K = str.maketrans('a', '@@')\ndef value(v):\n    return ord('a'.translate(K))", "b", "c"),
    "Ellipsis or None": ("K = @@\ndef value(v):\n    return K is None", "None", "False"),
}
