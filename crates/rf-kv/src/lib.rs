//! Paged KV cache bookkeeping: pages, page tables, sharing, eviction, statistics.
