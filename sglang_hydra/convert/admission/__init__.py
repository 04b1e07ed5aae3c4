"""Answers a cluster's AdmissionReviews as a webhook over HTTPS.

What goes here: reading and answering a review. What does not: judging a manifest, which is ``check``'s."""
