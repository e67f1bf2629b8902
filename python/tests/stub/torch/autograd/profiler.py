class profile:
    def __init__(self, enabled=True, profile_memory=False):
        self.memory = profile_memory
