"""The fast form: means of requests without a simulation."""
