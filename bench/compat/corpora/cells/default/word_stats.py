# %%
text = """It was the best of times, it was the worst of times, it was the age of wisdom,
it was the age of foolishness, it was the epoch of belief, it was the epoch of incredulity,
it was the season of Light, it was the season of Darkness, it was the spring of hope, it was
the winter of despair."""
import string
words = text.lower().translate(str.maketrans("", "", string.punctuation)).split()
len(words), len(set(words))
# %%
from collections import Counter
from itertools import islice, pairwise
c = Counter(words)
print(c.most_common(5))
bigrams = Counter(pairwise(words))
for (a, b), n in bigrams.most_common(4):
    print(f"{a} {b}: {n}")
def ngrams(seq, n):
    its = [islice(seq, i, None) for i in range(n)]
    return zip(*its)
print(Counter(ngrams(words, 3)).most_common(2))
# %%
import textwrap
print(textwrap.fill(text, width=44, initial_indent="  * ", subsequent_indent="    "))
print(textwrap.shorten(text, 60, placeholder=" [...]"))
# %%
import math
def tfidf(docs):
    df = Counter()
    for d in docs:
        df.update(set(d))
    N = len(docs)
    return [{w: round(n / len(d) * math.log(N / df[w]), 4) for w, n in Counter(d).items()} for d in docs]
docs = [s.lower().translate(str.maketrans("", "", string.punctuation)).split() for s in text.split(",")]
scores = tfidf(docs)
for s in scores[:4]:
    print(sorted(s.items(), key=lambda kv: (-kv[1], kv[0]))[:3])
# %%
# longest words, by length then alphabet
sorted({w for w in words}, key=lambda w: (-len(w), w))[:6]
