"""Why a plan is as it is: reasons, runners-up, baselines, thrift."""
