# %%
import networkx as nx
edges = """home blog 3
home docs 8
docs api 5
api ref 2
blog docs 1
ref home 1
shop cart 4
cart shop 1
blog about 2"""
G = nx.DiGraph()
for line in edges.splitlines():
    a, b, w = line.split()
    G.add_edge(a, b, weight=int(w))
print(G, sorted(G.nodes))
sorted(G.in_degree, key=lambda p: (-p[1], p[0]))
# %%
print([sorted(c) for c in sorted(nx.strongly_connected_components(G), key=lambda c: sorted(c))])
print(nx.shortest_path(G, "home", "ref", weight="weight"), nx.shortest_path_length(G, "home", "ref", weight="weight"))
try:
    nx.shortest_path(G, "home", "cart")
except nx.NetworkXNoPath as e:
    print(e)
# %%
U = G.to_undirected()
cent = nx.betweenness_centrality(U)
for n, c in sorted(cent.items(), key=lambda kv: (-kv[1], kv[0]))[:4]:
    print(f"{n:6} {c:.3f}")
T = nx.minimum_spanning_tree(U)
print(sorted((min(a, b), max(a, b), d["weight"]) for a, b, d in T.edges(data=True)))
# %%
pr = nx.pagerank(G)
print({k: round(v, 3) for k, v in sorted(pr.items())}, round(sum(pr.values()), 6))
D = nx.DiGraph([("wake", "wash"), ("wash", "eat"), ("wake", "tea"), ("tea", "eat"), ("eat", "go")])
print(list(nx.lexicographical_topological_sort(D)), nx.dag_longest_path(D), nx.is_directed_acyclic_graph(G))
print([list(p) for p in nx.all_simple_paths(D, "wake", "go")])
nx.to_dict_of_lists(D)
# %%
P = nx.petersen_graph()
print(nx.diameter(P), nx.is_planar(P), max(nx.greedy_color(P).values()) + 1, nx.number_of_nodes(nx.line_graph(P)))
F = nx.DiGraph()
F.add_edge("s", "a", capacity=3); F.add_edge("s", "b", capacity=2); F.add_edge("a", "t", capacity=2); F.add_edge("b", "t", capacity=3); F.add_edge("a", "b", capacity=5)
print(nx.maximum_flow_value(F, "s", "t"))
G.nodes["nowhere"]
