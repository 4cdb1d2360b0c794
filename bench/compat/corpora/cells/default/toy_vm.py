# %%
PROGRAM = """
    push 10
    store n
    push 1
    store acc
loop:
    load n
    jz done
    load acc
    load n
    mul
    store acc
    load n
    push 1
    sub
    store n
    jmp loop
done:
    load acc
    print
    halt
"""
def assemble(src):
    code, labels = [], {}
    for line in src.splitlines():
        line = line.split(";")[0].strip()
        if not line:
            continue
        if line.endswith(":"):
            labels[line[:-1]] = len(code)
        else:
            op, *args = line.split()
            code.append((op, *args))
    return [(op, *(labels.get(a, a) for a in args)) for op, *args in code]
code = assemble(PROGRAM)
for i, ins in enumerate(code):
    print(f"{i:02d}", *ins)
# %%
class VMError(RuntimeError):
    pass
class VM:
    def __init__(self, code, limit=10_000):
        self.code, self.stack, self.vars, self.pc, self.steps, self.limit = code, [], {}, 0, 0, limit
        self.out = []
    def step(self):
        op, *args = self.code[self.pc]
        self.pc += 1
        handler = getattr(self, f"op_{op}", None)
        if handler is None:
            raise VMError(f"unknown op {op!r} at {self.pc - 1}")
        handler(*args)
    def run(self):
        self.running = True
        while self.running:
            if self.steps >= self.limit:
                raise VMError("step limit")
            self.step()
            self.steps += 1
        return self
    def op_push(self, x): self.stack.append(int(x))
    def op_store(self, n): self.vars[n] = self.stack.pop()
    def op_load(self, n): self.stack.append(self.vars[n])
    def op_jz(self, t):
        if not self.stack.pop():
            self.pc = t
    def op_jmp(self, t): self.pc = t
    def op_print(self): self.out.append(self.stack[-1]); print("out:", self.stack[-1])
    def op_halt(self): self.running = False
for name, fn in {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__}.items():
    def op(self, fn=fn):
        b, a = self.stack.pop(), self.stack.pop()
        self.stack.append(fn(a, b))
    setattr(VM, f"op_{name}", op)
vm = VM(code).run()
print(vm.steps, vm.vars)
# %%
VM(assemble("spin:\n jmp spin")).run()
# %%
try:
    VM([("frob",)]).run()
except VMError as e:
    print(e)
# optimise: fold constant pushes
def fold(code):
    out = []
    for ins in code:
        out.append(ins)
        match out:
            case [*head, ("push", a), ("push", b), ("add",)]:
                out = [*head, ("push", str(int(a) + int(b)))]
            case [*head, ("push", a), ("push", b), ("mul",)]:
                out = [*head, ("push", str(int(a) * int(b)))]
    return out
fold(assemble("push 2\npush 3\nadd\npush 4\nmul\nprint\nhalt"))
