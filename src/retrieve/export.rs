//! Writes base retrieval with its inner state: the file of `livingrag retrieve`.
