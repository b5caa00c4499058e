"""The part of NVML that every reader of GPUs begins with."""


class NVMLError(Exception):
    pass


class Nvml:
    """GPUs as whatever stands for them; None = it fell off the bus, none at all = no driver."""

    NVMLError = NVMLError

    def __init__(self, *gpus):
        self.gpus, self.begun, self.shut = list(gpus), 0, 0

    def nvmlInit(self):
        if not self.gpus:
            raise NVMLError("no driver")
        self.begun += 1

    def nvmlShutdown(self):
        self.shut += 1

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        if self.gpus[index] is None:
            raise NVMLError("lost")
        return index
