# %%
import re
import numpy as np
import pandas as pd
docs = ["the cat sat on the mat", "a dog sat on a log", "cats and dogs are pets", "stock markets fell today", "the market rose as stocks rallied"]
stem = lambda w: re.sub(r"(es|s|ed)$", "", w)
vocab = {}
for d in docs:
    for w in map(stem, d.split()):
        vocab.setdefault(w, len(vocab))
M = np.zeros((len(docs), len(vocab)))
for i, d in enumerate(docs):
    for w in map(stem, d.split()):
        M[i, vocab[w]] += 1
print(M.shape, int(M.sum()), list(vocab)[:6])
# %%
idf = np.log(len(docs) / (M > 0).sum(0)) + 1
T = M * idf
T /= np.linalg.norm(T, axis=1, keepdims=True)
S = pd.DataFrame((T @ T.T).round(2), index=[f"d{i}" for i in range(5)], columns=[f"d{i}" for i in range(5)])
print(S.to_string())
S.where(~np.eye(5, dtype=bool)).stack().idxmax()
# %%
def search(q, k=2):
    v = np.zeros(len(vocab))
    for w in map(stem, q.lower().split()):
        if w in vocab:
            v[vocab[w]] += idf[vocab[w]]
    n = np.linalg.norm(v)
    if n == 0:
        raise LookupError(f"no known word in {q!r}")
    score = T @ (v / n)
    return [(docs[i], round(float(score[i]), 3)) for i in np.argsort(-score, kind="stable")[:k]]
for q in ("stock market", "dogs on logs"):
    print(q, "->", search(q))
search("quantum")
# %%
from scipy.cluster.hierarchy import linkage, fcluster
from scipy.sparse import csr_matrix
sp = csr_matrix(M)
print(sp.nnz, sp.shape, sp.getrow(0).toarray().sum(), (sp @ sp.T).toarray()[0])
Z = linkage(T, "average", metric="cosine")
print(fcluster(Z, 2, "maxclust").size, Z[:, 3])
