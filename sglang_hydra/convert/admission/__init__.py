"""The webhook that judges objects as a cluster takes them: AdmissionReviews in and out, over HTTPS.

What belongs here is how a review is read and answered. Judging a manifest is ``check``'s.
"""
