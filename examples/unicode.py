"""Text is UTF-8 from end to end."""

print("Grüße, 世界, \N{SNOWMAN}, 👩‍🚀")
{"naïve": "日本語", "emoji": "🦆"}
