"""What the code uses: processes, memory, storage, as /proc, /sys and the file system show them."""
