"""Caches of prefixes in tiers of memory: which nodes of texts each pool has. Plain lists.

A text is a path of nodes from a root. A pool has whole nodes. Tier 0 is the memory of one rank, where
requests that run use nodes; the tiers below it are numbered from 1, and nobody uses their nodes.
"""

PER_RANK, PER_SERVER, PER_FLEET = range(3)
"""Scopes of a tier: who has a pool of its own."""


class Pool:
    """Nodes in a memory."""

    def __init__(self, capacity):
        self.capacity = capacity  # tokens; of tier 0, what is in use included
        self.idle = []  # nodes that nobody uses, the oldest first
        self.users = {}  # of each node in use, how many requests use it

    def has(self, node):
        """Say whether a node is there."""
        return node in self.idle or node in self.users

    def renew(self, node):
        """Make a node the newest of those that nobody uses."""
        if node in self.idle:
            self.idle.remove(node)
        self.idle.append(node)


def path_of(texts, text):
    """Return the nodes of a text, the root first."""
    path = []
    while text >= 0:
        path.insert(0, text)
        text = texts["parent"][text]
    return path


def tokens_of(texts, nodes, column="tokens"):
    """Return the tokens of some nodes, or what they take by another column: room, weight."""
    return sum(texts[column][node] for node in nodes)


def adapters_of(texts, nodes):
    """Return those of some nodes that are adapters: they have no tokens."""
    return [node for node in nodes if texts["tokens"][node] == 0]


class Caches:
    """All pools of a fleet, and the links over which ranks read."""

    def __init__(self, texts, tiers, capacities, ranks, source):
        """Start empty.

        tiers: below the first one, each with its scope, capacity, through, latency_s and token_s; capacities:
        of tier 0, of every server's ranks [tokens]; ranks: of each server; source: of adapters.
        """
        self.texts, self.tiers, self.ranks = texts, [None, *tiers], ranks
        count = len(capacities) * ranks
        self.pools = [[Pool(capacities[rank // ranks]) for rank in range(count)]]
        self.pools += [[Pool(tier["capacity"]) for _ in range(count)] for tier in tiers]
        self.source, self.loaded_s = source, [0.0] * count
        self.loads = [[] for _ in range(count)]  # times of each rank's loads
        self.free_s = [[0.0] * count for _ in self.tiers]  # when each rank's link to each tier is free

    def pool(self, tier, rank):
        """Return a rank's pool of a tier."""
        scope = PER_RANK if tier == 0 else self.tiers[tier]["scope"]
        number = {PER_RANK: rank, PER_SERVER: rank // self.ranks, PER_FLEET: 0}[scope]
        return self.pools[tier][number]

    def below(self, tier):
        """Return the next tier and whether it is written through; None for the last."""
        if tier + 1 == len(self.tiers):
            return None, False
        return tier + 1, self.tiers[tier + 1]["through"]

    def put(self, tier, rank, node):
        """Put a node into a tier as the newest one, and into those below that are written through."""
        self.pool(tier, rank).renew(node)
        following, through = self.below(tier)
        if through:
            self.put(following, rank, node)

    def trim(self, rank, used):
        """Drop the oldest nodes of each tier until the rest has room; used: tokens in use on the rank.

        Each goes to the next tier, unless that has it already, since it is written through.
        """
        for tier in range(len(self.tiers)):
            pool = self.pool(tier, rank)
            room = pool.capacity - (used if tier == 0 else 0)
            while pool.idle and tokens_of(self.texts, pool.idle, "room") > room:
                node = pool.idle.pop(0)
                following, through = self.below(tier)
                if following is not None and not through:
                    self.put(following, rank, node)

    def tier_of(self, rank, node):
        """Return the first tier that has a node for a rank, or None."""
        tiers = [tier for tier in range(len(self.tiers)) if self.pool(tier, rank).has(node)]
        return tiers[0] if tiers else None

    def leading(self, text, is_there):
        """Return the first nodes of a text that are there, up to one that is not."""
        nodes = []
        for node in path_of(self.texts, text):
            if not is_there(node):
                break
            nodes.append(node)
        return nodes

    def hit(self, rank, text):
        """Return the leading tokens of a text that are in a rank's own memory, to where it may go on."""
        nodes = self.leading(text, self.pool(0, rank).has)
        while nodes and not self.texts["resumes"][nodes[-1]]:
            nodes.pop()
        return tokens_of(self.texts, nodes)

    def hit_anywhere(self, rank, text):
        """Return the leading tokens of a text that a rank has in any tier."""
        return tokens_of(self.texts, self.leading(text, lambda node: self.tier_of(rank, node) is not None))

    def shared(self, rank, text):
        """Return the room of a text that requests use on a rank, less that of an adapter which none uses."""
        used = self.leading(text, lambda node: node in self.pool(0, rank).users)
        free = [] if used else adapters_of(self.texts, path_of(self.texts, text))
        return tokens_of(self.texts, used, "weight") - tokens_of(self.texts, free, "room")

    def load(self, rank, text, now):
        """Load the adapter of a text where no tier has it; return when it is there."""
        root = path_of(self.texts, text)[0]
        if not adapters_of(self.texts, [root]) or self.tier_of(rank, root) is not None:
            return now
        self.pool(0, rank).renew(root)
        size = self.texts["room"][root]
        if size == 0:
            return now
        took = self.source["load_latency_s"] + size * self.source["load_token_s"]
        self.loaded_s[rank] = max(now, self.loaded_s[rank]) + took
        self.loads[rank].append(self.loaded_s[rank] - now)
        return self.loaded_s[rank]

    def read_adapter(self, rank, text, now):
        """Bring the adapter of a text to a rank that lacks it; return how long this takes."""
        root = path_of(self.texts, text)[0]
        if not adapters_of(self.texts, [root]) or self.pool(0, rank).has(root):
            return 0.0
        return self.read(rank, root, now)[0] - now

    def read(self, rank, text, now):
        """Bring the leading nodes of a text to a rank; return (when they are there, tokens that are read)."""
        ready, total = self.load(rank, text, now), 0
        nodes = self.leading(text, lambda node: self.tier_of(rank, node) is not None)
        sources = [self.tier_of(rank, node) for node in nodes]
        for tier in range(1, len(self.tiers)):
            pairs = zip(nodes, sources, strict=True)
            these = [node for node, source in pairs if source == tier]
            whole = [node for node in these if node == nodes[-1] or adapters_of(self.texts, [node])]
            rest = [node for node in these if node not in whole]
            size = tokens_of(self.texts, whole, "room") + tokens_of(self.texts, rest, "weight")
            if size:
                begin = max(now, self.free_s[tier][rank])
                end = begin + self.tiers[tier]["latency_s"] + size * self.tiers[tier]["token_s"]
                self.free_s[tier][rank] = end
                ready, total = max(ready, end), total + tokens_of(self.texts, these)
        for node, source in reversed(list(zip(nodes, sources, strict=True))):
            if node not in self.pool(0, rank).users:
                self.pool(0, rank).renew(node)
            if source > 0:
                self.pool(source, rank).renew(node)
        return ready, total

    def use(self, rank, text):
        """Let a request that starts use all nodes of its prompt."""
        pool = self.pool(0, rank)
        for node in path_of(self.texts, text):
            if node in pool.idle:
                pool.idle.remove(node)
            pool.users[node] = pool.users.get(node, 0) + 1

    def release(self, rank, text, answer=-1):
        """Let a request use its nodes no longer.

        answer: the last node of its answer, which it leaves, or -1.
        """
        pool = self.pool(0, rank)
        for node in reversed(path_of(self.texts, answer)[len(path_of(self.texts, text)) :]):
            if node not in pool.users:
                self.put(0, rank, node)
        for node in reversed(path_of(self.texts, text)):
            pool.users[node] -= 1
            if pool.users[node] == 0:
                del pool.users[node]
                self.put(0, rank, node)

    def lose(self, rank):
        """Empty the memory of a rank whose server is off, and its pools below that are not the fleet's."""
        for tier in range(len(self.tiers)):
            if tier == 0 or self.tiers[tier]["scope"] != PER_FLEET:
                pool = self.pool(tier, rank)
                assert not pool.users
                pool.idle = []
