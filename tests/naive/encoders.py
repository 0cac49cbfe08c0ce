"""Encoders of images on devices of their own: a queue with several servers and equal times."""


class Encoders:
    def __init__(self, server):
        self.free = [0.0] * server["encoders"]  # when each has encoded all that it has
        self.encode_s, self.send_s = server["encode_s"], server["send_s"]

    def arrival(self, sent):
        """Return when a request comes to its server, with its embeddings where there are encoders."""
        if not self.free:
            return sent
        first = self.free.index(min(self.free))
        self.free[first] = max(self.free[first], sent) + self.encode_s
        return self.free[first] + self.send_s
