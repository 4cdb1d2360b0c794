# %%
import heapq
grid = """
S..#....
.#.#.##.
.#...#..
.####.#.
......#E
""".strip().splitlines()
H, W = len(grid), len(grid[0])
start = next((r, c) for r in range(H) for c in range(W) if grid[r][c] == "S")
end = next((r, c) for r, line in enumerate(grid) for c, ch in enumerate(line) if ch == "E")
print(H, W, start, end)
# %%
def neighbors(p):
    r, c = p
    for dr, dc in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        nr, nc = r + dr, c + dc
        if 0 <= nr < H and 0 <= nc < W and grid[nr][nc] != "#":
            yield nr, nc

def dijkstra(start, end):
    dist, prev = {start: 0}, {}
    heap = [(0, start)]
    while heap:
        d, p = heapq.heappop(heap)
        if p == end:
            break
        if d > dist[p]:
            continue
        for q in neighbors(p):
            if (nd := d + 1) < dist.get(q, float("inf")):
                dist[q] = nd
                prev[q] = p
                heapq.heappush(heap, (nd, q))
    path = [end]
    while path[-1] != start:
        path.append(prev[path[-1]])
    return dist[end], path[::-1]

length, path = dijkstra(start, end)
print(length)
# %%
canvas = [list(row) for row in grid]
for r, c in path[1:-1]:
    canvas[r][c] = "*"
print("\n".join(map("".join, canvas)))
# %%
# check with plain BFS
from collections import deque
q = deque([(start, 0)])
seen = {start}
while q:
    p, d = q.popleft()
    if p == end:
        print("bfs agrees:", d == length, d)
        break
    for n in neighbors(p):
        if n not in seen:
            seen.add(n)
            q.append((n, d + 1))
len(seen)
