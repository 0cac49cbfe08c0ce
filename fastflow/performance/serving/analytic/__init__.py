"""The analytic form: means of requests without a simulation."""
