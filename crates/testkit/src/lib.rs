//! Drawn scenes with known truth, scripted providers and conformance suites, for tests only.
