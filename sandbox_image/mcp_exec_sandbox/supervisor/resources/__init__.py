"""Resources of the code: processes, memory, storage, as /proc, /sys and the file system show them."""
