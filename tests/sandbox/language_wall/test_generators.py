"""Generators and star-unpacking."""


def test_generators_work_with_send_throw_and_delegation(same):
    """yield, yield from, send, throw, close, return values."""
    same("""
        class Tree:
            def __init__(self, v, *kids): self._v, self._kids = v, kids
            def __iter__(self):
                yield self._v
                for kid in self._kids: yield from kid
        def running():
            total, got = 0, None
            try:
                while True:
                    got = yield total
                    total += got or 0
            except KeyError as e: yield f"caught {e}"
            finally: print("closed")
            return total
        g = running(); next(g); g.send(5)
        result = (list(Tree(1, Tree(2), Tree(3, Tree(4)))), g.send(2), g.throw(KeyError("k")), g.close(),
                  g.gi_running, sum(x for t in [Tree(9)] for x in t))
    """)


def test_star_unpacking_works_everywhere(same):
    """In targets, calls, displays, subscripts, returns and loops."""
    same("""
        first, *middle, last = range(5)
        (a, *b), [c, *d] = "xyz", [1]
        def f(*args, **kw): return args, kw
        def g(): return *middle, last
        for head, *tail in [(1, 2, 3), "ab"]: print(head, tail)
        t = tuple[*(int, str)]
        x = y, *z = [1, 2]
        result = (first, middle, last, a, b, c, d, f(*b, *d, 1, **{"k": 2}, **dict(j=3)), g(), [*middle, *d, 9],
                  {*middle}, {**{"a": 1}, "b": 2}, t, x, y, z)
    """)


def test_the_states_of_generators_and_coroutines_can_be_asked(same):
    """What `inspect` says of the session's own generators and coroutines, from their beginning to their end."""
    same("""
        import inspect
        def numbers():
            yield inspect.getgeneratorstate(own[0])
        async def later(): return 1
        async def many(): yield 1
        own = [numbers()]
        states = [inspect.getgeneratorstate(own[0]), next(own[0]), inspect.getgeneratorstate(own[0])]
        own[0].close()
        states.append(inspect.getgeneratorstate(own[0]) == inspect.GEN_CLOSED)
        waiting = later()
        states.append(inspect.getcoroutinestate(waiting))
        waiting.close()
        states.append(inspect.getcoroutinestate(waiting) == inspect.CORO_CLOSED)
        if hasattr(inspect, "getasyncgenstate"):
            states.append(inspect.getasyncgenstate(many()) == inspect.AGEN_CREATED)
        result = states
    """)
