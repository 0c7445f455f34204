"""Parts of scripts/abuse: servers with their clients, peers that mean harm, and what is judged."""
